"""
Plot: what a run did, waited for, was told, and had undone, as lines of its story.

Each is a moment and a sentence; the timeline puts them in order. Works on the record of
`semel.core.story`; decides nothing and asks nothing.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

Record = Mapping[str, Any]
Moment = tuple[str | None, str]

#: Of an input, a result or a reason, this much is shown; --json has the whole.
TEXT_CHARS_MAX = 1000


def moments(run: Record) -> Iterator[Moment]:
    """All of *run* up to its end, but its events and attempts."""
    for signal in run["signals"]:
        yield _signal(signal)
    spoken = {approval["approval_id"] for approval in run["approvals"]}
    for step in run["steps"]:
        if step["kind"] == "approval" and step["entry"] == "result":
            content = step["content"]
            if isinstance(content, dict) and content.get("approval_id") in spoken:
                continue  # the approval itself says it, with who and why
        yield _step(step)
    for wait in run["waits"]:
        yield _wait(wait)
    for approval in run["approvals"]:
        yield from _approval(approval)
    yield from _others(run)
    for undo in run["undoes"] or ():
        yield _undo(undo)


def aftermath(run: Record) -> Iterator[Moment]:
    """What began with the end of *run*."""
    if run["compensation"]:
        yield from _compensation(run["compensation"])


def family(run: Record) -> Iterator[str]:
    """What belongs to the head of the story: whose run it is, and what undoes it."""
    parent = run["parent_run_id"]
    match run["kind"]:
        case "undo":
            yield f"undoes    run {parent}"
        case "notify":
            yield f"notifies  of run {parent}"
        case "child":
            yield f"child of  run {parent}"
        case _:
            pass
    if run["compensation"]:
        undo = run["compensation"]
        yield f"undone    by run {undo['run_id']}: {undo['status']}{_failure(undo)}"
    elif run["undo"] == "held":
        yield f"undone    not yet: `semel run compensate {run['run_id']}`, or retry it"


def _step(step: Record) -> Moment:
    key, kind, content = step["step_key"], step["kind"], step["content"]
    head = f"step      {key}" if kind == "step" else f"step      {key} ({kind})"
    match step["entry"]:
        case "intent" if kind == "tool":
            sent = content.get("send")
            repeat = "may be repeated" if content.get("repeatable") else "is not repeated"
            said = (
                f"sends {content.get('server')}.{content.get('tool')}, time {sent}; it {repeat}"
            )
        case "intent":
            args = value({name: told for name, told in content.items() if name != "undo"})
            said = f"begins; {content.get('undo')} undoes it, with {args}"
        case "error":
            said = f"failed {_told(content)}"
        case "caught":
            said = f"failed for good, and the handler went on: {_told(content)}"
        case "patch":
            said = f"patched: {value(content)}"
        case _:
            said = _result(kind, content)
    return step["recorded_at"], f"{head}: {said}, attempt {step['attempt']}"


def _result(kind: str, content: Any) -> str:
    match kind:
        case "sleep":
            said = "slept"
        case "spawn":
            said = f"started run {content['run_id']} of {content['agent']}"
        case "signal" | "child" if content.get("timed_out"):
            said = "waited in vain"
        case "signal":
            said = f"heard {value(content['content'])} from {content['sender'] or 'somebody'}"
        case "child":
            said = f"run {content['run_id']} ended {content['status']}"
            said += f" {value(content['result'])}" if content["status"] == "COMPLETED" else ""
            said += (
                f" {content['code']} {cut(str(content['reason']))}" if content["code"] else ""
            )
        case "tool" if "result" in content:
            said = f"answered {value(content['result'])}"
        case "tool":
            said = f"no result: {value({k: v for k, v in content.items() if k != 'call_id'})}"
        case "skip":
            said = f"skipped by {content['by']}: {cut(str(content['reason']))}"
        case _:
            said = f"result {value(content)}"
    return said


def _wait(wait: Record) -> Moment:
    what = {
        "sleep": "sleeps",
        "retry": "waits to try again",
        "signal": f"waits for signal {wait['name']}",
        "child": f"waits for run {wait['child_id']}",
        "approval": "waits for a decision",
        "tool": f"waits for run {wait['child_id']}, which calls a tool",
        "answer": "waits for the tool to post its answer",
    }[wait["kind"]]
    until = f" until {moment(wait['due_at'])}" if wait["due_at"] else ""
    return wait["created_at"], f"wait      {wait['step_key']}: {what}{until}"


def _signal(signal: Record) -> Moment:
    taken = f"taken by step {signal['taken_by']}" if signal["taken_by"] else "no step asked yet"
    sender = str(signal["sender"]) or (
        f"event {signal['event_id']}" if signal["event_id"] else "-"
    )
    head = f"signal    {cut(str(signal['name']))} from {cut(sender)}"
    said = f"{head}: {value(signal['content'])}; {taken}"
    return signal["sent_at"], said


def _approval(approval: Record) -> Iterator[Moment]:
    head = f"approval  {cut(str(approval['title']))}"
    need = f"{approval['need']} of " if approval["need"] > 1 or approval["approvers"] else ""
    whom = cut(", ".join(approval["approvers"] or ["whoever has the role"]))
    asked = f"{head}: asked of {need}{whom} until {moment(approval['expires_at'])}"
    below = f"{_BELOW}{approval['approval_id']} {value(approval['action'])}"
    yield approval["created_at"], f"{asked}\n{below}"
    for link in approval["links"] or ():
        yield link["at"], f"{head}: link for {cut(str(link['recipient']))}"
    for vote in approval["votes"] or ():
        at = f" at {vote['address']}" if vote["address"] else ""
        why = f": {cut(str(vote['reason']))}" if vote["reason"] else ""
        yield (
            vote["at"],
            f"{head}: {cut(str(vote['voter']))} says {vote['decision']}, by {vote['via']}{at}{why}",
        )
    if approval["decided_at"]:
        yield approval["decided_at"], f"{head}: {approval['state']}"


def _others(run: Record) -> Iterator[Moment]:
    """What other runs did for it."""
    for tool in run["tools"]:
        yield from _tool(tool)
    calls = {tool["call_id"] for tool in run["tools"] if tool["server"] != "agents"}
    for child in run["children"]:
        if child["run_id"] not in calls:  # the call's own lines say it
            yield from _child(child)


def _tool(tool: Record) -> Iterator[Moment]:
    head = f"tool      {cut('.'.join((tool['server'], tool['tool'])))}"
    yield (
        tool["asked_at"],
        f"{head}: asked by run {tool['call_id']}, {value(tool['arguments'])}",
    )
    if tool["sent_at"]:
        times = "once" if tool["sends"] == 1 else f"{tool['sends']} times"
        yield tool["sent_at"], f"{head}: sent {times}, key {tool['idempotency_key']}"
    if tool["answered_at"]:
        how = f" by {tool['via']}" if tool["via"] else ""
        yield tool["answered_at"], f"{head}: {tool['state']}{how}"
    else:
        yield None, f"{head}: {tool['state']}, until {moment(tool['due_at'])}"


def _child(child: Record) -> Iterator[Moment]:
    if child["kind"] == "notify":
        head = f"notify    {cut(str(child['recipient']))} by run {child['run_id']}"
    else:
        head = f"child     {child['run_id']} of {child['agent']}"
    if child["finished_at"]:
        yield child["created_at"], f"{head}: started"
        yield child["finished_at"], f"{head}: {child['status']}{_failure(child)}"
    else:
        tried = f", attempt {child['attempt_count']}" if child["attempt_count"] else ""
        yield child["created_at"], f"{head}: {child['status']}{tried}{_failure(child)}"


def _compensation(undo: Record) -> Iterator[Moment]:
    yield undo["created_at"], f"undo      run {undo['run_id']} started"
    for step in undo["steps"]:
        yield _undo(step)
    if undo["finished_at"]:
        said = f"undo      run {undo['run_id']}: {undo['status']}{_failure(undo)}"
        yield undo["finished_at"], said


def _undo(step: Record) -> Moment:
    head = f"undo      {step['step_key']} by {step['undo']}"
    undone = step["undone"]
    if not step["undone_at"]:
        effect = "" if step["finished"] else "; its step may have taken effect"
        return None, f"{head}: not undone{effect}"
    if isinstance(undone, dict) and undone.get("skipped") is True:
        return step[
            "undone_at"
        ], f"{head}: skipped by {undone['by']}: {cut(str(undone['reason']))}"
    return step["undone_at"], f"{head}: undone"


def _told(content: Any) -> str:
    """An error as the journal keeps it."""
    if isinstance(content, dict) and "message" in content:
        kind = str(content.get("type", "error")).removeprefix("builtins.")
        return cut(f"{kind}: {content['message']}")
    return value(content)


def _failure(run: Record) -> str:
    return (
        f" {run['failure_code']} {cut(str(run['failure_reason']))}"
        if run["failure_code"]
        else ""
    )


def moment(at: str | None) -> str:
    """A time to the second, in UTC."""
    return f"{datetime.fromisoformat(at):%Y-%m-%d %H:%M:%SZ}" if at else "-"


def value(told: Any) -> str:
    """An input or a result, as JSON cut to what one reads."""
    return cut(json.dumps(told, ensure_ascii=False))


def printable(said: str) -> str:
    """*said* with what could move a terminal's cursor or turn its writing spelled out."""
    return "".join(
        char
        if char.isprintable() or char in "\n\u3000"
        else char.encode("unicode_escape").decode()
        for char in said
    )


def cut(said: str) -> str:
    """The first line of *said*, no longer than one reads."""
    whole = said.partition("\n")[0]
    return (
        whole
        if len(whole) <= TEXT_CHARS_MAX
        else whole[:TEXT_CHARS_MAX] + "… (--json shows all)"
    )


#: Where a second line of a moment begins.
_BELOW = " " * 32
