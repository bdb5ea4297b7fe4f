"""
Timeline: a run or an event as a story for a person, oldest first.

Works on the records of `semel.core.reads` and `story`; decides nothing and asks nothing. What a
run waited for, said and undid is worded in plot.py.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from semel.ops.cli import plot
from semel.ops.cli.plot import Record, cut, moment, value

#: Of many deliveries, this many are shown.
DELIVERIES_MAX = 20
#: A provider's id is readable at its beginning.
ID_CHARS_MAX = 40
#: What an event that made no run is to the run that it speaks of.
_TOLD = {
    "joined": "joined",
    "resolved": "tells of a resolution to",
    "superseded": "tells of a new episode to",
}
#: Verdicts that are reached before it is asked whether the event is known.
_JUDGED = ("ignored", "quarantined")
#: Where a moment without a time stands.
LAST = datetime.max.replace(tzinfo=UTC)


def of_run(run: Record) -> str:
    """All that happened to *run*."""
    version = f" version {run['version']}" if run["version"] else ""
    where = f"in project {run['project_id']}, priority {run['priority']}"
    head = [
        f"run       {run['run_id']}",
        f"agent     {run['agent']}{version} {where}",
        *plot.family(run),
        f"status    {run['status']}{_cause(run)}",
        f"attempts  {run['attempt_count']} of {run['max_attempts']}, fence {run['fence']}",
        f"input     {value(run['input'])}",
    ]
    if run["status"] == "COMPLETED":
        head.append(f"result    {value(run['result'])}")
    moments = [
        (run["created_at"], "created"),
        *(_event(event) for event in run["events"]),
        *_deliveries(run["deliveries"]),
        *(_attempt(attempt) for attempt in run["attempts"]),
        *plot.moments(run),
    ]
    if run["finished_at"]:
        moments.append((run["finished_at"], str(run["status"])))
    moments += plot.aftermath(run)
    return plot.printable("\n".join([*head, "", *_lines(moments)]))


def of_event(event: Record) -> str:
    """*event* and its deliveries."""
    head = [
        f"event     {event['event_id']}",
        f"source    {event['source']} ({event['channel_type']})",
        f"project   {event['project_id']}",
        f"id        {event['provider_event_id']}",
        f"run       {event['run_id'] or '-'}",
        f"seen      {_times(event['hits'])}, from {moment(event['first_seen_at'])}",
        f"last      {moment(event['last_seen_at'])}",
    ]
    return "\n".join([*head, "", *deliveries(event["deliveries"])])


def of_delivery(delivery: Record) -> str:
    """*delivery* with the beginning of its body."""
    head = [
        f"delivery  {delivery['delivery_id']}",
        f"source    {delivery['source']} ({delivery['channel_type']})",
        f"project   {delivery['project_id']}",
        f"received  {moment(delivery['received_at'])}",
        f"verdict   {delivery['verdict']}: {delivery['reason']}",
        f"id        {delivery['provider_event_id'] or '-'}",
        f"event     {delivery['event_id'] or '-'}",
        f"run       {delivery['run_id'] or '-'}",
    ]
    if delivery["body"] is None:
        return "\n".join([*head, "body      purged"])
    said = [*head, f"body      {delivery['body_bytes']} bytes", "", str(delivery["body"])]
    shown = delivery["body_shown"]
    if shown < delivery["body_bytes"]:
        said.append(f"… of which these are the first {shown}")
    return "\n".join(said)


def escaped(raw: bytes) -> str:
    """*raw* as one line that is safe on a terminal, everything else backslash-escaped."""
    text = raw.decode("utf-8", "backslashreplace")
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def explanation(found: Sequence[Record], started: Sequence[Record], what: str) -> str:
    """
    In a sentence, why there is or is not a run.

    Args:
        found: The deliveries.
        started: What is remembered of the id.
        what: The id and source, in words.
    """
    news = [one for one in found if one["verdict"] == "new" and one["run_id"]]
    if news and news[0].get("relation") in _TOLD:
        told = _TOLD[news[0]["relation"]]
        return f"{what} came {_times(len(found))} and {told} run {news[0]['run_id']}"
    made = [one["run_id"] for one in news]
    if made:
        runs = ", ".join(dict.fromkeys(made))
        now = [one["run_id"] for one in started if one["run_id"] not in {*made, None}]
        since = f"; it stands for run {now[0]} now" if now else ""
        return f"{what} came {_times(len(found))} and made run {runs}{since}"
    if started:
        return f"{what} started run {started[0]['run_id']}, seen {_times(started[0]['hits'])}"
    if found:
        known = next((one["run_id"] for one in found if one["run_id"]), None)
        last = found[-1]
        why = f": {last['verdict']}, {last['reason']}" if last["verdict"] in _JUDGED else ""
        run = f"; its run is {known}" if known else f" and made no run{why}"
        return f"{what} came {_times(len(found))}{run}"
    return (
        f"{what} is not known. It never came, or was refused as not authentic (nothing is kept"
        " of that), or no id could be read from it (`semel event list --verdict quarantined`),"
        " or its retention has ended"
    )


def deliveries(found: Sequence[Record]) -> list[str]:
    """One line for each delivery: when, the verdict, why."""
    return _lines(_deliveries(found))


def _lines(moments: Iterable[tuple[str | None, str]]) -> list[str]:
    ordered = sorted(
        moments, key=lambda one: datetime.fromisoformat(one[0]) if one[0] else LAST
    )
    return [f"{moment(at):20}  {said}" for at, said in ordered]


def _event(event: Record) -> tuple[str | None, str]:
    name = str(event["provider_event_id"])
    short = name if len(name) <= ID_CHARS_MAX else name[:ID_CHARS_MAX] + "…"
    said = f"event     {event['source']} {short}"
    if event["relation"] == "made":
        return event["first_seen_at"], f"{said} made it; seen {_times(event['hits'])}"
    if event["relation"] == "joined":
        return event["first_seen_at"], f"{said} joined it, by {cut(event['content']['key'])}"
    return event["first_seen_at"], f"{said}: {event['relation']} {_alerts(event['content'])}"


def _alerts(content: Any) -> str:
    """The alerts that an event speaks of, by name; other content as it is."""
    try:
        names = [
            f"{alert['labels']['alertname']} (ended {alert['endsAt']})" for alert in content
        ]
    except (TypeError, LookupError):
        return value(content)
    return cut(", ".join(names))


def _deliveries(found: Sequence[Record]) -> list[tuple[str | None, str]]:
    shown = [
        (one["received_at"], f"delivery  {one['verdict']}: {one['reason']}")
        for one in found[:DELIVERIES_MAX]
    ]
    if len(found) > DELIVERIES_MAX:
        shown.append(
            (found[-1]["received_at"], f"delivery  and {len(found) - DELIVERIES_MAX} more")
        )
    return shown


def _attempt(attempt: Record) -> tuple[str | None, str]:
    said = (
        f"attempt   {attempt['attempt']}, fence {attempt['fence']},"
        f" worker {attempt['worker_id']}: {attempt['outcome']}"
    )
    if attempt["ended_at"]:
        said += f" at {moment(attempt['ended_at'])[11:]}"
    cause = " ".join(str(attempt[name]) for name in ("code", "reason") if attempt[name])
    return attempt["claimed_at"], f"{said}\n{' ' * 32}{cut(cause)}" if cause else said


def _cause(run: Record) -> str:
    return (
        f" {run['failure_code']} {cut(str(run['failure_reason']))}"
        if run["failure_code"]
        else ""
    )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
