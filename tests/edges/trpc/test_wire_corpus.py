"""Every request of the corpus is answered as the servers that it was captured from did."""

import asyncio
import base64
import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from semel.trpc import UNDEFINED, BigInt, Context, File, Form, Map, Router, TRPCError

CORPUS = json.loads(
    (Path(__file__).parents[2] / "corpus" / "trpc_wire.json").read_text()
)["entries"]

#: Of these the message is V8's own.
JSON_ERRORS = {"raw_malformed_json", "raw_nan_literal", "raw_get_query_bad_input"}
#: Fetch puts U+FFFD for bytes that are no UTF-8; two inputs would have one digest, so it is refused.
REFUSED = {"raw_invalid_utf8"}
#: Which call of a stream ends first is up to the machine.
RACES = {"v10_sj_stream_partial"}


class Shop:
    """The procedures that the corpus was captured from."""

    def __init__(self, version: int, **options: Any) -> None:
        self.router = router = Router(version=version, **options)
        acct = Router()
        fail = Router()

        @acct.query("balance")
        async def balance(ctx: Context, given: Any) -> Any:
            return {"id": given["id"], "cents": 1250}

        def deposited(given: Any) -> Any:
            if isinstance(given["cents"], float):
                raise ValueError(ZOD)
            return given

        @acct.mutation("deposit", input=deposited)
        async def deposit(ctx: Context, given: Any) -> Any:
            return {"receipt": f"r-{given['id']}", "cents": given["cents"]}

        @router.query("sys.ping")
        async def ping(ctx: Context) -> Any:
            return "pong"

        @router.mutation("sys.touch")
        async def touch(ctx: Context) -> Any:
            return {"touched": True}

        @router.mutation("sys.void")
        async def void(ctx: Context) -> Any:
            return UNDEFINED

        @router.mutation("sys.nul")
        async def nul(ctx: Context) -> Any:
            return None

        @router.mutation("note.create")
        async def create(ctx: Context, given: Any) -> Any:
            text = given["text"]
            return {"len": len(text.encode("utf-16-le")) // 2, "text": text}

        @fail.mutation("conflict")
        async def conflict(ctx: Context) -> Any:
            raise TRPCError("CONFLICT", "idempotency key reused with different input")

        @fail.mutation("bad")
        async def bad(ctx: Context) -> Any:
            raise TRPCError("BAD_REQUEST", "amount must be positive")

        @fail.mutation("boom")
        async def boom(ctx: Context) -> Any:
            raise RuntimeError("kaput")

        @fail.mutation("inProgress")
        async def in_progress(ctx: Context) -> Any:
            raise TRPCError("TOO_MANY_REQUESTS")

        def echoed(ctx: Context, given: Any) -> Any:
            kind = "object"
            if given is None:
                kind = "null" if ctx.has_input else "undefined"
            name = "typeofInput" if version == 11 else "t"
            return {name: kind, "input": given}

        @router.query("echoQ")
        async def echo_query(ctx: Context, given: Any) -> Any:
            return echoed(ctx, given)

        @router.mutation("echoM")
        async def echo_mutation(ctx: Context, given: Any) -> Any:
            return echoed(ctx, given)

        @router.mutation("file")
        async def file(ctx: Context, given: Any) -> Any:
            if isinstance(given, Form):
                upload = given.get("f")
                assert isinstance(upload, File)
                return {"kind": "form", "name": given.get("name"), "size": len(upload.content)}
            return {"kind": "octets", "size": len(given)}

        @router.mutation("gen")
        async def gen(ctx: Context) -> Any:
            return Letters()

        @router.query("slow")
        async def slow(ctx: Context, given: Any) -> Any:
            await asyncio.sleep(given / 1000)
            return {"waited": given}

        @router.query("nested")
        async def nested(ctx: Context) -> Any:
            async def later() -> Any:
                return {"v": 2}

            return {"now": 1, "later": later()}

        @router.mutation("time.shift")
        async def shift(ctx: Context, given: Any) -> Any:
            return {"at": given["at"] + timedelta(days=given["days"])}

        @router.mutation("rich")
        async def rich(ctx: Context, given: Any) -> Any:
            return {
                "big": BigInt(9007199254740993),
                "when": datetime(1970, 1, 1),
                "set": {1: None, 2: None}.keys() and RICH_SET,
                "map": Map([("k", 1)]),
                "undef": UNDEFINED,
                "nan": float("nan"),
                "neg0": -0.0,
            }

        router.include("acct", acct)
        router.include("fail", fail)


RICH_SET = {1, 2}
ZOD = """[
  {
    "code": "invalid_type",
    "expected": "integer",
    "received": "float",
    "message": "Expected integer, received float",
    "path": [
      "cents"
    ]
  }
]"""


class Letters:
    """An async iterator that returns a value, which no async generator of Python can."""

    def __init__(self) -> None:
        self._left = ["a", "b"]

    def __aiter__(self) -> "Letters":
        return self

    async def __anext__(self) -> str:
        if not self._left:
            raise StopAsyncIteration("done")
        return self._left.pop(0)


def app_for(entry: dict[str, Any]) -> Any:
    options: dict[str, Any] = {}
    if entry["transformer"] != "none":
        options["transformer"] = "superjson"
    if entry["name"].startswith("batching_disabled"):
        options["batching"] = False
    if entry["name"] == "body_too_large":
        options["body_bytes_max"] = 1000
    version = 10 if entry["server"].startswith("@trpc/server 10") else 11
    return Shop(version, **options).router.asgi()


def body_of(message: dict[str, Any]) -> bytes:
    if "body_base64" in message:
        return base64.b64decode(message["body_base64"])
    body = str(message["body"])
    if "…CUT…" in body:
        # What was cut out is more of the same letter.
        before, _, after = body.partition("…CUT…")
        missing = message["body_length"] - len((before + after).encode())
        body = before + "x" * missing + after
    return body.encode()


async def exchange(app: Any, request: dict[str, Any]) -> tuple[int, dict[str, str], bytes, list[bytes]]:
    method, target, _ = request["start_line"].split(" ")
    raw_path, _, query = target.partition("?")
    body = body_of(request)
    headers = [
        (name.lower().encode(), value.encode())
        for name, value in request["headers"]
        if name.lower() != "idempotency-key" and not (name == "content-type" and not value and False)
    ]
    scope = {
        "type": "http",
        "method": method,
        "path": unquote(raw_path),
        "raw_path": raw_path.encode(),
        "query_string": query.encode(),
        "headers": headers,
        "root_path": "",
    }
    incoming = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[dict[str, Any]] = []

    async def receive() -> Any:
        if incoming:
            return incoming.pop(0)
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    chunks = [message.get("body", b"") for message in sent[1:]]
    return sent[0]["status"], answered, b"".join(chunks), [chunk for chunk in chunks if chunk]


@pytest.mark.parametrize("entry", CORPUS, ids=lambda entry: entry["name"])
def test_a_captured_request_is_answered_as_it_was(entry: dict[str, Any]) -> None:
    app = app_for(entry)
    for each in entry["exchanges"]:
        status, headers, body, chunks = asyncio.run(exchange(app, each["request"]))
        if entry["name"] in REFUSED:
            assert status == 400
            assert json.loads(body)["error"]["data"]["code"] == "BAD_REQUEST"
            continue
        expected = each["response"]
        assert status == int(expected["start_line"].split(" ")[1])
        told = {name.lower(): value for name, value in expected["headers"]}
        for name in ("content-type", "vary", "allow"):
            assert headers.get(name) == told.get(name)
        wanted = body_of(expected)
        if entry["name"] in JSON_ERRORS:
            assert without_message(body) == without_message(wanted)
        elif entry["name"] in RACES:
            assert json.loads(body) == json.loads(wanted)
        else:
            assert body == wanted
            if "chunks" in expected and entry["name"] not in RACES:
                assert [chunk.decode() for chunk in chunks] == expected["chunks"]


def without_message(body: bytes) -> Any:
    told = json.loads(body)
    assert told["error"].pop("message")
    return told


def test_the_corpus_has_all_its_entries() -> None:
    assert len(CORPUS) == 97
