"""run.tool in a world: what a handler gets, what it may ask, and that a replay says the same."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

import semel
from fix_world import Conn, one
from semel import (
    App,
    ApprovalRejected,
    Run,
    ToolError,
    ToolNotCalled,
    ToolTimedOut,
    ToolUnknown,
)
from semel.errors import BadRequest, CallEnded, NoSuchCall
from semel.runtime.tools import Tool
from semel.testing import World

app = App()
MINUTE = timedelta(minutes=1)


@app.agent("asks")
async def asks(run: Run) -> Any:
    server, tool, args = run.input
    return await run.tool(server, tool, args)


@app.agent("goes-on")
async def goes_on(run: Run) -> Any:
    """Catches what the tool does, waits, and is called again from the start."""
    said = []
    for tool in run.input:
        try:
            said.append(await run.tool("cluster", tool, timeout=MINUTE))
        except (ToolError, ToolTimedOut, ToolUnknown, ToolNotCalled) as error:
            said.append([error.code, str(error)])
    await run.sleep(60)
    return said


@app.agent("in-thread")
def in_thread(run: Run) -> Any:
    return run.tool("app", "double", {"value": run.input})


@app.agent("in-process", executor="process")
def in_process(run: Run) -> Any:
    return run.tool("app", "double", {"value": run.input})


@app.agent("calls-back")
async def calls_back(run: Run) -> Any:
    return await run.tool("cluster", "later", callback=True, timeout=MINUTE)


@app.agent("square", max_attempts=1)
async def square(run: Run) -> int:
    return int(run.input) ** 2


@app.tool("double")
def double(value: int) -> int:
    return 2 * value


def sour() -> None:
    raise ToolError("no such pod")


def world(
    dsn: str, given: list[str] | None = None, **tools: Callable[..., Any] | Tool
) -> World:
    def later(callback: str) -> Any:
        if given is not None:
            given.append(callback)
        return semel.LATER

    return World(app, dsn, tools={"cluster": {"later": later, "sour": sour, **tools}})


def played(play: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(play())  # type: ignore[arg-type]


def test_a_handler_is_given_what_a_tool_answers_wherever_it_runs(dsn: str) -> None:
    async def play() -> None:
        async with world(dsn, pods=lambda ns: [f"{ns}-1"]) as here:
            runs = [
                await here.start("asks", ["cluster", "pods", {"ns": "web"}]),
                await here.start("asks", ["agents", "square", 7]),
                await here.start("in-thread", 21),
                await here.start("in-process", 21),
            ]
            await here.drain()
            assert [["web-1"], 49, 42, 42] == [(await here.run(run)).result for run in runs]

    played(play)


def test_what_a_tool_raises_is_raised_again_in_each_attempt(dsn: str, conn: Conn) -> None:
    calls = []

    def counted() -> int:
        calls.append(1)
        return len(calls)

    async def play() -> None:
        async with world(dsn, counted=counted, bad=lambda: {1}) as here:
            run = await here.start("goes-on", ["sour", "counted", "none", "bad", "later"])
            await here.drain()
            here.advance(minutes=1)
            await here.drain()
            here.advance(minutes=1)
            await here.drain()
            said = (await here.run(run)).result
            assert ["E-TOOL-003", "cluster.sour: no such pod"] == said[0]
            assert 1 == said[1]
            assert ["E-TOOL-004", "E-TOOL-003", "E-TOOL-003"] == [code for code, _ in said[2:]]
            assert "no tool 'none'" in said[2][1]
            assert "ask with callback=True" in said[4][1]
            assert (await here.run(run)).attempt_count == 1

    played(play)
    assert [1] == calls


def test_a_server_that_nobody_configured_is_refused_before_anything_is_parked(
    dsn: str, conn: Conn
) -> None:
    async def play() -> None:
        async with world(dsn) as here:
            for server, tool, words in [
                ("nowhere", "x", "there are agents, app, cluster"),
                ("app", "x", "there are double"),
            ]:
                run = await here.start("asks", [server, tool, {}])
                await here.drain()
                ended = await here.run(run)
                assert ("FAILED", "E-TOOL-004") == (ended.status, ended.failure_code)
                assert words in ended.failure_reason
                assert 1 == ended.attempt_count

    played(play)
    assert 0 == one(conn, "select count(*) from semel.tools")


@pytest.mark.parametrize(
    "asked",
    [
        ["", "x", {}],
        [7, "x", {}],
        ["cluster", "", {}],
        ["cluster", "x" * 256, {}],
        ["cluster", "x", [1]],
        ["cluster", "x", {"a": "b" * 300_000}],
        ["agents", "semel.tool", {}],
    ],
    ids=lambda asked: str(asked)[:30],
)
def test_what_is_no_call_fails_its_run_at_once(dsn: str, conn: Conn, asked: Any) -> None:
    async def play() -> None:
        async with world(dsn) as here:
            run = await here.start("asks", asked)
            await here.drain()
            ended = await here.run(run)
            assert ("FAILED", "E-REQUEST-001", 1) == (
                ended.status, ended.failure_code, ended.attempt_count,
            )  # fmt: skip

    played(play)


def test_no_timeout_is_longer_than_a_year_or_shorter_than_nothing() -> None:
    from semel.runtime.tools import TIMEOUT_MAX, checked

    assert timedelta(days=366) == TIMEOUT_MAX
    for arguments in ({"a": float("nan")}, {"a": "\0"}, {"a": object()}):
        with pytest.raises(BadRequest):
            checked("cluster", "x", arguments)


def test_a_tool_that_calls_back_is_waited_for_without_a_worker(dsn: str, conn: Conn) -> None:
    given: list[str] = []

    async def play() -> None:
        async with world(dsn, given) as here:
            run = await here.start("calls-back")
            await here.drain()
            assert ["WAITING_TOOL", "WAITING_TOOL"] == [one.status for one in await here.runs()]
            await here.answer(given[0], {"result": {"ok": True}})
            await here.drain()
            assert {"ok": True} == (await here.run(run)).result
            with pytest.raises(CallEnded):
                await here.answer(given[0], {"result": 2})
            with pytest.raises(NoSuchCall):
                await here.answer("http://world/tool/nothing", {"result": 2})

            late = await here.start("calls-back")
            await here.drain()
            here.advance(minutes=1)
            await here.drain()
            assert ("FAILED", "E-TOOL-001") == (
                (await here.run(late)).status, (await here.run(late)).failure_code,
            )  # fmt: skip
            with pytest.raises(CallEnded):
                await here.answer(given[1], {"result": 2})

    played(play)


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_worker_that_is_lost_in_a_call_repeats_it_only_where_it_may_be(
    dsn: str, conn: Conn, *, idempotent: bool
) -> None:
    keys: list[str] = []

    async def play() -> None:
        async def act(idempotency_key: str) -> str:
            keys.append(idempotency_key)
            if len(keys) == 1:
                here.crash()
            return "ok"

        tool = Tool(name="act", fn=act, idempotent=idempotent)
        async with world(dsn, act=tool) as here:
            run = await here.start("asks", ["cluster", "act", {}])
            await here.drain()
            here.advance(minutes=1)
            await here.drain()
            ended = await here.run(run)
            want = ("ok", None) if idempotent else (None, "E-TOOL-002")
            assert want == (ended.result, ended.failure_code)

    played(play)
    assert [2 if idempotent else 1, 1] == [len(keys), len(set(keys))]


def test_consent_that_is_refused_is_raised_as_such() -> None:
    from semel.core.tools import Ask
    from semel.runtime.tools import value_of

    ask = Ask(server="cluster", tool="x", arguments={}, key="k")
    with pytest.raises(ApprovalRejected):
        value_of(ask, {"rejected": "bob said no"}, MINUTE)
    with pytest.raises(ToolUnknown):
        value_of(ask, {}, MINUTE)
    with pytest.raises(ToolError, match="does not say why"):
        value_of(ask, {"error": {}}, MINUTE)
