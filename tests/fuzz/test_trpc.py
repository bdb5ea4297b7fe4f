"""Whatever comes to a tRPC router: an answer of tRPC's form, no fault of ours, no second execution."""

import json
from collections.abc import Iterator
from random import Random
from typing import Any
from urllib.parse import quote

import pytest

import fuzzing
from fix_world import Conn
from fuzzing import TIMEOUT, fuzz
from semel.trpc import Context, Form, Router
from trpc_asking import Answered, ask
from trpc_shop import Shop, open_shop

pytestmark = pytest.mark.timeout(TIMEOUT)

#: Inputs as superjson has them, and as JSON has them.
INPUTS: list[Any] = [
    {"id": "a", "cents": 1},
    {"json": {"at": "2026-01-02T03:04:05.678Z"}, "meta": {"values": {"at": ["Date"]}, "v": 1}},
    {
        "json": {"s": [1, 2], "n": "NaN"},
        "meta": {"values": {"s": ["set"], "n": ["number"]}, "v": 1},
    },
    {"json": [["k", "5"]], "meta": {"values": [["map"], {"0.1": ["bigint"]}], "v": 1}},
    {"json": {"a": {}, "b": {}}, "meta": {"referentialEqualities": {"a": ["b"]}, "v": 1}},
    None,
]
PATHS = ["put", "get", "none.such", "put,put", "put,get", "get,get", ""]
MEDIA = [
    "application/json",
    "Application/JSON; x=y",
    "text/plain",
    "multipart/form-data; boundary=b",
    "application/octet-stream",
    "",
]
FORM = b'--b\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\nabc\r\n--b--\r\n'
KEYS = [
    '"k"',
    "k",
    "",
    '"',
    '"a", "b"',
    '"a","a"',
    "a;b",
    "\\",
    '"' + "k" * 256 + '"',
    "k\xe9",
    ",",
    '"a";p=1, "b"',
]


def echo(pool: Any, **options: Any) -> Router:
    router = Router(pool, project="shop", context=lambda request: {"actor": "a"}, **options)

    @router.mutation("put")
    async def put(ctx: Context, given: Any) -> Any:
        await ctx.conn.execute("insert into shipped (id) values ('x')")
        return len(given) if isinstance(given, Form | bytes) else given

    @router.query("get")
    async def get(ctx: Context, given: Any) -> Any:
        return given

    return router


@pytest.fixture(params=[11, 10])
def shop(request: Any, dsn: str, conn: Conn) -> Iterator[Shop]:
    with open_shop(dsn, conn, echo, version=request.param, transformer="superjson") as here:
        yield here


def sent(some: Random) -> tuple[str, str, bytes, list[tuple[str, str]]]:
    path = some.choice([*PATHS, quote(fuzzing.text(some).encode("utf-8", "replace"))])
    query = some.choice(
        ["", "batch=1", "batch=1", "batch=0", "input=", "%zz", "batch=1&batch=2"]
    )
    good: list[Any] = [*INPUTS, {"0": some.choice(INPUTS), "1": some.choice(INPUTS)}]
    body = some.choice([fuzzing.body(some, good), fuzzing.torn(some, FORM), FORM])
    method = some.choice(["POST", "POST", "POST", "GET", "PUT", "DELETE", "OPTIONS"])
    if method == "GET":
        query += "&input=" + quote(body)
    headers = [("content-type", some.choice([MEDIA[0], *MEDIA]))]
    names = ("idempotency-key", "idempotency-keys", "idempotency_key")
    headers += [(name, some.choice(KEYS)) for name in names if some.random() < 0.3]
    if some.random() < 0.2:
        headers.append(
            some.choice([("trpc-accept", "application/jsonl"), ("trpc-batch-mode", "stream")])
        )
    return method, f"/{path}?{query}", body, headers


def told(answer: Answered) -> list[Any]:
    """The envelopes of an answer that is no stream."""
    said = answer.json
    return said if isinstance(said, list) else [said]


def test_no_request_is_a_fault_of_ours(shop: Shop) -> None:
    executed = 0

    def case(some: Random) -> None:
        nonlocal executed
        method, target, body, headers = sent(some)
        answer = shop.run(ask(shop.app, method, target, body, headers))
        streams = any(name.startswith("trpc-") for name, _ in headers) and answer.status == 200
        assert answer.status < 500, answer
        if not streams:
            for envelope in told(answer):
                assert ("error" in envelope) != ("result" in envelope)
                if "error" in envelope:
                    shape = envelope["error"]["json"]
                    assert shape["data"]["httpStatus"] in {
                        answer.status,
                        400,
                        404,
                        405,
                        409,
                        415,
                    }
                    assert answer.status != 200
        executed += answer.body.count(b'"result"')

    fuzz(case)
    # A key that came again executed nothing again; a call without one did.
    keyed = shop.conn.execute(
        "select count(*) from semel.operation where attempts <> 1"
    ).fetchone()
    assert keyed == (0,)
    assert shop.count("shipped") <= executed


def test_a_torn_request_leaves_the_loop_alive(shop: Shop) -> None:
    async def gone() -> None:
        async def receive() -> Any:
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            raise AssertionError(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/put",
            "query_string": b"",
            "headers": [],
        }
        await shop.app(scope, receive, send)

    shop.run(gone())
    assert json.loads(shop.ask("put", {"json": 1}, key="k").body) == {
        "result": {"data": {"json": 1}}
    }
