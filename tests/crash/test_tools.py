"""Tools over real MCP servers, real workers, and their deaths."""

import os
import signal
import socket
from contextlib import closing
from pathlib import Path
from uuid import UUID

import pytest

from durable import journal
from fix_tools import QUICK, ToolWorld
from fix_world import Conn, one, start_run, status, until

pytestmark = pytest.mark.crash


def test_what_a_tool_answers_its_caller_is_given_while_one_slot_does_for_both(
    tools: ToolWorld, conn: Conn
) -> None:
    tools.settle()
    worker = tools.worker(worker_slots="1")
    pods = tools.call("list_pods", {"ns": "web"})
    sour = tools.call("sour")
    big = tools.call("big")
    no_tool = tools.call("no-such")
    no_server = tools.call("list_pods", server="nowhere")
    no_args = tools.call("list_pods", {"wrong": 1})
    function = tools.call("double", {"value": 21}, server="app")
    raises = tools.call("raises", server="app")
    agent = tools.call("square", 7, server="agents")
    breaks = tools.call("breaks", server="agents")
    thread = start_run(conn, "call-in-thread")
    several = start_run(conn, "several")

    assert ["web-1", "web-2"] == tools.ends(pods)["result"]
    assert [("call", "intent"), ("call", "result")] == [
        (key, entry) for key, entry, _ in journal(conn, UUID(tools.tool(pods)["call_id"]))
    ]
    shown = tools.tool(pods)
    assert ("ANSWERED", True, 1, "call") == (
        shown["state"], shown["repeatable"], shown["sends"], shown["via"],
    )  # fmt: skip
    assert [[42, 36], "E-TOOL-003", 49, "E-TOOL-003"] == [
        tools.ends(function)["result"],
        tools.ends(raises)["result"]["code"],
        tools.ends(agent)["result"],
        tools.ends(breaks)["result"]["code"],
    ]
    told = tools.ends(sour)["result"]
    assert "E-TOOL-003" == told["code"]
    assert told["said"].startswith("cluster.sour: ")
    assert told["said"].endswith("no such pod")
    assert "it answered 1048579 bytes" in tools.ends(big)["result"]["said"]
    assert "E-TOOL-003" == tools.ends(no_args)["result"]["code"]
    assert {"E-TOOL-004"} == {tools.ends(r)["result"]["code"] for r in (no_tool, no_server)}
    assert "add [tools.nowhere] to semel.toml" in tools.ends(no_server)["result"]["said"]
    assert ["web-1", "web-2"] == tools.ends(thread)["result"]
    assert [["web-1", "web-2"], ["db-1", "db-2"], [42, 36]] == tools.ends(several)["result"]

    assert "zapped" == tools.ends(tools.call("zap", server="local"))["result"]
    [(_, _, piped)] = tools.executed()
    assert alive(piped)
    worker.terminate()
    assert 0 == worker.wait(20)
    assert not alive(piped)


def test_a_call_whose_runner_is_killed_is_repeated_only_where_its_key_is_honoured(
    tools: ToolWorld, conn: Conn
) -> None:
    tools.settle()
    tools.hold()
    worker = tools.worker()
    servers = ("cluster", "local")
    honoured = [tools.call("charge", {"amount": 5}, server) for server in servers]
    others = [tools.call("zap", server=server) for server in servers]
    until(lambda: len(tools.executed()) == 4)
    assert {"WAITING_TOOL"} == {status(conn, run) for run in (*honoured, *others)}
    piped = {pid for _, _, pid in tools.executed() if pid not in tools.serving}
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait()
    assert 1 == len(piped)
    until(lambda: not any(alive(pid) for pid in piped))
    tools.let_go()
    tools.worker()
    tools.programs.upkeep(**QUICK)

    assert [{"charged": 5}] * 2 == [tools.ends(run_id)["result"] for run_id in honoured]
    assert ["E-TOOL-002"] * 2 == [tools.ends(run_id)["result"]["code"] for run_id in others]
    assert ["charge", "charge", "zap", "zap"] == sorted(one[0] for one in tools.executed())
    assert [("ANSWERED", 2)] * 2 + [("UNKNOWN", 1)] * 2 == [
        (shown["state"], shown["sends"]) for shown in map(tools.tool, (*honoured, *others))
    ]


def test_a_function_that_takes_its_worker_along_is_called_again_only_if_it_may_be(
    tools: ToolWorld, conn: Conn
) -> None:
    (tools.folder / "semel.toml").write_text("")
    tools.programs.upkeep(**QUICK)
    worker = tools.worker()
    for tool, ends in (("dies", "E-TOOL-002"), ("dies-but-may", "survived")):
        run_id = tools.call(tool, server="app")
        assert -signal.SIGKILL == worker.wait(30)
        worker = tools.worker()
        told = tools.ends(run_id)["result"]
        assert ends == (told if isinstance(told, str) else told["code"])


def test_a_call_ends_in_time_whether_its_server_is_down_or_slow(
    tools: ToolWorld, conn: Conn
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
    away = f'[tools.away]\nurl = "http://127.0.0.1:{port}/mcp"\nattempts = 2\n'
    gone = f'[tools.gone]\nhttp = "http://127.0.0.1:{port}"\nattempts = 1\nroutes = {{ x = "POST /" }}\n'
    none = '[tools.none]\ncommand = "/nonexistent"\nattempts = 1\n'
    slow = f'[tools.slow]\nurl = "http://127.0.0.1:{port}/mcp"\n'
    tools.settle(away + gone + none + slow)
    tools.hold()
    tools.worker()
    tools.programs.upkeep(**QUICK)
    refused = [tools.call("x", server=name) for name in ("away", "gone", "none")]
    late = tools.call("x", server="slow", timeout=1)
    held = tools.call("zap", timeout=3)
    for run_id in refused:
        assert "E-TOOL-004" == tools.ends(run_id)["result"]["code"]
        assert ("REFUSED", 0) == (tools.tool(run_id)["state"], tools.tool(run_id)["sends"])
    told = tools.ends(late)["result"]
    assert ("E-TOOL-001", True) == (told["code"], "it was never sent" in told["said"])
    told = tools.ends(held)["result"]
    assert "E-TOOL-001" == told["code"]
    assert {"TIMED_OUT"} == {tools.tool(run_id)["state"] for run_id in (late, held)}
    calls = [tools.tool(run_id)["call_id"] for run_id in (late, held)]
    assert {"CANCELLED"} == {status(conn, call_id) for call_id in calls}


def test_a_tool_that_wants_consent_is_resumed_once_a_person_approves(
    tools: ToolWorld, conn: Conn
) -> None:
    tools.settle()
    tools.worker()
    runs = [tools.call("refund", {"amount": 5}) for _ in range(2)]
    until(lambda: one(conn, "select count(*) from semel.approvals") == 2)
    assert [] == tools.executed()
    for run_id, decision in zip(runs, ("approve", "reject"), strict=True):
        call_id = tools.tool(run_id)["call_id"]
        assert ["WAITING_TOOL", "WAITING_APPROVAL"] == [
            status(conn, run_id),
            status(conn, call_id),
        ]
        [(approval, title, action)] = conn.execute(
            "select approval_id, title, action from semel.approvals where run_id = %s",
            (call_id,),
        ).fetchall()
        assert ("cluster.refund: Refund 5?", {"amount": 5}) == (title, action["arguments"])
        conn.execute(
            "select semel.approval_decide('p', null, %s, %s, 'bob', 'cli')",
            (approval, decision),
        )
    assert "refunded 5 True" == tools.ends(runs[0])["result"]
    assert "E-APPROVAL-004" == tools.ends(runs[1])["failure_code"]
    assert ["refund"] == [tool for tool, _, _ in tools.executed()]


def alive(pid: int) -> bool:
    """Whether a process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
