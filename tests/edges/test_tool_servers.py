"""Servers of tools: whatever they answer, it is told apart whether the tool may have acted."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fix_tools import SERVER
from rude import Asked, McpManners, reply, rude
from semel.config import ToolServer
from semel.core.text import DEPTH_MAX
from semel.edges.tools import mcp
from semel.edges.tools.functions import LATER, Functions
from semel.edges.tools.http import Http
from semel.edges.tools.mcp import over_http, over_stdio
from semel.edges.tools.server import ANSWER_BYTES_MAX, Sending, Unanswered, Unsent, kept
from semel.runtime.tools import Tool


def sending(tool: str, **more: Any) -> Sending:
    told: dict[str, Any] = {"arguments": {}, "key": "k1", "callback": None, "seconds": 20.0}
    return Sending(tool=tool, **(told | more))


def said(answer: Any) -> str:
    return str(answer["error"]["message"])


def always(raw: bytes) -> Callable[[Any], bytes]:
    return lambda _: raw


def answering(result: Any) -> Callable[[Any], bytes]:
    return lambda message: McpManners.result(message, result)


def failing(status: int, error: Any) -> Callable[[Any], bytes]:
    return lambda message: reply(
        status, {"jsonrpc": "2.0", "id": message["id"], "error": error}
    )


MIB = 1024 * 1024

#: What a server makes of a call, and what that is to whoever called.
UNANSWERED: dict[str, Any] = {
    "it hangs up": lambda _: None,
    "it fails": lambda _: reply(500, b"<p>oh", "text/html"),
    "a gateway is in the way": lambda _: reply(502, b"<p>oh", "text/html"),
    "a page": lambda _: reply(200, b"<p>hello", "text/html"),
    "nothing": lambda _: reply(202),
    "no JSON": lambda _: reply(200, b"{"),
    "no answer": lambda _: reply(200, {"what": 1}),
    "no result": lambda message: McpManners.result(message, {"content": 7}),
    "half of it": lambda message: McpManners.result(message, {"content": []}).replace(
        b"Content-Length: ", b"Connection: close\r\nContent-Length: 9"
    ),
    "a stream that ends": lambda _: reply(200, b": nothing\n\n", "text/event-stream"),
    "too much": lambda message: McpManners.result(
        message, {"content": [{"type": "text", "text": "x" * (4 * MIB)}]}
    ),
}


def test_an_mcp_server_that_does_not_answer_may_have_acted_and_is_still_usable() -> None:
    async def go() -> None:
        manners = McpManners()
        async with rude(manners) as origin:
            server = over_http(ToolServer(name="rude", url=f"{origin}/mcp"), {})
            assert [False, True, True, None] == [
                await server.look(tool) for tool in ("plain", "reads", "again", "none")
            ]
            for what, answers in UNANSWERED.items():
                manners.call = answers
                with pytest.raises(Unanswered):
                    await server.send(sending("plain"))
                manners.call = manners.good
                assert {"result": "done"} == await server.send(sending("plain")), what
            await server.close()

    asyncio.run(asyncio.wait_for(go(), 60))


def test_an_mcp_server_that_refuses_has_not_acted_and_what_it_answers_is_told() -> None:
    async def go() -> None:
        manners = McpManners()
        async with rude(manners) as origin:
            settings = ToolServer(
                name="rude", url=f"{origin}/mcp", token="env:T", honours_key=("plain",)
            )
            server = over_http(settings, {"T": "t0p"})
            assert await server.look("plain")
            for status in (401, 403, 404, 307):
                manners.call = always(reply(status, b"", "text/plain"))
                answer = await server.send(sending("plain"))
                assert f"it answered {status}" in answer["refused"]
            manners.call = always(reply(429, b"", "text/plain"))
            with pytest.raises(Unsent):
                await server.send(sending("plain"))
            error = {"code": -32000 - 999, "message": "no such pod"}
            for status in (200, 400):
                manners.call = failing(status, error)
                assert "no such pod" == said(await server.send(sending("plain")))
            for result, want in [
                ({"content": [], "structuredContent": {"a": 1}}, {"result": {"a": 1}}),
                ({"content": []}, {"result": None}),
                ({"content": [], "_meta": {"semel/accepted": True}}, {"accepted": True}),
                (
                    {"content": [{"type": "text", "text": t} for t in "ab"]},
                    {"result": ["a", "b"]},
                ),
            ]:
                manners.call = answering(result)
                assert want == await server.send(sending("plain", callback="http://c/tool/t"))
            told = manners.calls[-1]["params"]["_meta"]
            assert ("k1", "http://c/tool/t") == (
                told["idempotency_key"],
                told["semel/callback"],
            )
            manners.call = lambda message: McpManners.result(
                message, {"content": [{"type": "text", "text": "x" * (MIB + 1)}]}
            )
            assert "at most 1048565 are kept" in said(await server.send(sending("plain")))
            await server.close()

    asyncio.run(asyncio.wait_for(go(), 60))


def test_an_mcp_server_that_goes_was_not_called_and_is_met_again_when_it_is_back() -> None:
    async def go() -> None:
        manners = McpManners()
        async with rude(manners) as origin:
            server = over_http(ToolServer(name="rude", url=f"{origin}/mcp"), {})
            assert {"result": "done"} == await server.send(sending("plain"))
        manners.call = lambda _: None
        with pytest.raises((Unsent, Unanswered)):
            await server.send(sending("plain"))  # on a connection that was open
        for _ in range(2):
            with pytest.raises(Unsent):
                await server.look("plain")
        await server.close()

    asyncio.run(asyncio.wait_for(go(), 60))


#: Hangs when it is first started, and serves from then on.
HANGS_ONCE = """
import os, pathlib, sys, time
folder, server = sys.argv[1:]
mark = pathlib.Path(folder, "started")
if not mark.exists():
    mark.touch()
    time.sleep(1000)
os.execv(sys.executable, [sys.executable, server, folder])
"""


def test_a_server_that_hangs_when_it_is_met_is_given_up_and_met_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp, "MEET_SECONDS_MAX", 5.0)
    words = ("-c", HANGS_ONCE, str(tmp_path), SERVER)
    settings = ToolServer(name="slow", command=sys.executable, args=words)

    async def go() -> None:
        server = over_stdio(settings, {})
        with pytest.raises(Unsent, match="gave no sign"):
            await server.look("charge")
        for _ in range(4):
            try:
                assert await server.look("charge") is False
                break
            except Unsent as late:
                assert "gave no sign" in str(late)
        else:
            pytest.fail("the first one is waited for still")
        await server.close()

    asyncio.run(asyncio.wait_for(go(), 60))


def test_an_answer_is_kept_only_where_the_journal_can_keep_it_too() -> None:
    around = len('{"result":""}')
    assert "result" in kept("x" * (ANSWER_BYTES_MAX - around))
    assert "error" in kept("x" * (ANSWER_BYTES_MAX - around + 1))
    deep: Any = 1
    for _ in range(DEPTH_MAX):
        deep = [deep]
    assert "nested deeper" in said(kept(deep))
    assert "result" in kept(deep[0])


def test_a_route_is_called_with_its_key_and_what_it_answers_is_told_apart() -> None:
    seen: list[Asked] = []
    manners: list[Any] = [b""]

    def serve(asked: Asked) -> bytes | None:
        seen.append(asked)
        answer: bytes | None = manners[0]
        return answer

    async def go() -> None:
        async with rude(serve) as origin:
            settings = ToolServer(
                name="bill",
                http=f"{origin}/api",
                routes={
                    "refund": "POST /refunds",
                    "find": "GET /find?all=1",
                    "drop": "DELETE /x",
                },
                headers={"X-Team": "ops"},
                honours_key=False,
            )
            server = Http(settings, {})
            assert [False, True, True, None] == [
                await server.look(tool) for tool in ("refund", "find", "drop", "none")
            ]
            for answer, want in [
                (reply(201, {"id": 1}), {"result": {"id": 1}}),
                (reply(204), {"result": None}),
                (reply(202, {"id": 2}), {"result": {"id": 2}}),
            ]:
                manners[0] = answer
                assert want == await server.send(sending("refund", arguments={"amount": 5}))
            post = seen[-1]
            assert ("POST", "/api/refunds", b'{"amount":5}') == (
                post.method,
                post.target,
                post.body,
            )
            assert ('"k1"', "ops") == (post.headers["idempotency-key"], post.headers["x-team"])
            assert {"accepted": True} == await server.send(
                sending("refund", callback="http://c/t")
            )
            assert "http://c/t" == seen[-1].headers["semel-callback"]
            manners[0] = reply(200, [])
            await server.send(sending("find", arguments={"q": "a b", "n": 1}))
            assert ("GET", "/api/find?all=1&q=a+b&n=1", b"") == (
                seen[-1].method, seen[-1].target, seen[-1].body,
            )  # fmt: skip
            for answer, words in [
                (reply(404, {"detail": "no such"}), "it answered 404: {"),
                (reply(500, b"oh", "text/plain"), "it answered 500: oh"),
                (reply(409, b"taken", "text/plain"), "it answered 409: taken"),
                (reply(200, b"<p>", "text/html"), "no JSON. What it did stands"),
                (reply(200, b"9" * (MIB + 9)), "more than 1048576 bytes"),
            ]:
                manners[0] = answer
                assert words in said(await server.send(sending("refund")))
            rude_ones: list[tuple[bytes | None, Any]] = [
                (None, Unanswered),
                (reply(503), Unanswered),
                (reply(409, b"", Retry_After="1"), Unanswered),
                (b"HTTP/9 what\r\n\r\n", Unanswered),
                (reply(429, b"", Retry_After="7"), Unsent),
            ]
            for sent, kind in rude_ones:
                manners[0] = sent
                with pytest.raises(kind) as raised:
                    await server.send(sending("refund"))
            assert isinstance(raised.value, Unsent)
            assert raised.value.retry_after
            assert 7 == raised.value.retry_after.total_seconds()
        with pytest.raises((Unsent, Unanswered)):
            await server.send(sending("refund"))
        with pytest.raises(Unsent):
            await server.send(sending("refund"))
        await server.close()

    asyncio.run(asyncio.wait_for(go(), 60))


def test_a_function_is_called_by_name_and_what_it_makes_of_that_is_its_answer() -> None:
    def add(a: int, b: int = 1, *, idempotency_key: str) -> Any:
        return [a + b, idempotency_key]

    async def later(callback: str | None) -> Any:
        return LATER

    def nothing() -> Any:
        return {1, 2}

    def large() -> str:
        return "x" * (MIB + 1)

    class Odd:
        async def __call__(self, n: int) -> int:
            return n + 1

    async def stops() -> None:
        raise asyncio.CancelledError

    odd: dict[str, Any] = {"odd": Odd(), "dict": dict, "stops": stops}
    fns: dict[str, Any] = odd | {"add": add, "later": later, "nothing": nothing, "large": large}
    server = Functions(
        {name: Tool(name=name, fn=fn, idempotent=name == "add") for name, fn in fns.items()}
    )

    async def go() -> None:
        assert [True, False, None] == [await server.look(t) for t in ("add", "later", "no")]
        assert {"result": [3, "k1"]} == await server.send(sending("add", arguments={"a": 2}))
        assert "missing" in said(await server.send(sending("add")))
        assert {"accepted": True} == await server.send(sending("later", callback="u"))
        assert "ask with callback=True" in said(await server.send(sending("later")))
        assert "no JSON" in said(await server.send(sending("nothing")))
        assert "1048579 bytes" in said(await server.send(sending("large")))
        assert {"result": 3} == await server.send(sending("odd", arguments={"n": 2}))
        assert {"result": {"n": 2}} == await server.send(sending("dict", arguments={"n": 2}))
        assert "CancelledError" in said(await server.send(sending("stops")))

    asyncio.run(go())
