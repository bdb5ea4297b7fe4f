"""The procedures that tests/corpus/trpc_wire.json was captured from."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from semel.trpc import UNDEFINED, BigInt, Context, File, Form, Map, Router, TRPCError

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


def router(version: Any, **options: Any) -> Router:
    made = Router(version=version, **options)
    made.include("acct", accounts())
    made.include("fail", failures())
    made.include("sys", small())
    _values(made, version)
    _streams(made)
    return made


def accounts() -> Router:
    acct = Router()

    @acct.query("balance")
    async def balance(ctx: Context, given: Any) -> Any:
        return {"id": given["id"], "cents": 1250}

    def deposited(given: Any) -> Any:
        if given["cents"] != int(given["cents"]):
            raise ValueError(ZOD)
        return given

    @acct.mutation("deposit", input=deposited)
    async def deposit(ctx: Context, given: Any) -> Any:
        return {"receipt": f"r-{given['id']}", "cents": given["cents"]}

    return acct


def failures() -> Router:
    fail = Router()

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

    return fail


def small() -> Router:
    sys = Router()

    @sys.query("ping")
    async def ping(ctx: Context) -> Any:
        return "pong"

    @sys.mutation("touch")
    async def touch(ctx: Context) -> Any:
        return {"touched": True}

    @sys.mutation("void")
    async def void(ctx: Context) -> Any:
        return UNDEFINED

    @sys.mutation("nul")
    async def nul(ctx: Context) -> Any:
        return None

    return sys


def _values(made: Router, version: int) -> None:
    @made.mutation("note.create")
    async def create(ctx: Context, given: Any) -> Any:
        text = given["text"]
        return {"len": len(text.encode("utf-16-le")) // 2, "text": text}

    async def echo(ctx: Context, given: Any) -> Any:
        kind = "object"
        if given is None:
            kind = "null" if ctx.has_input else "undefined"
        return {"typeofInput" if version == 11 else "t": kind, "input": given}

    made.query("echoQ")(echo)
    made.mutation("echoM")(echo)

    @made.mutation("file")
    async def file(ctx: Context, given: Any) -> Any:
        if isinstance(given, Form):
            upload = given.get("f")
            assert isinstance(upload, File)
            return {"kind": "form", "name": given.get("name"), "size": len(upload.content)}
        return {"kind": "octets", "size": len(given)}

    @made.mutation("time.shift")
    async def shift(ctx: Context, given: Any) -> Any:
        return {"at": given["at"] + timedelta(days=given["days"])}

    @made.mutation("rich")
    async def rich(ctx: Context, given: Any) -> Any:
        return {
            "big": BigInt(9007199254740993),
            "when": datetime(1970, 1, 1, tzinfo=UTC),
            "set": {1, 2},
            "map": Map([("k", 1)]),
            "undef": UNDEFINED,
            "nan": float("nan"),
            "neg0": -0.0,
        }


def _streams(made: Router) -> None:
    @made.mutation("gen")
    async def gen(ctx: Context) -> Any:
        return Letters()

    @made.query("slow")
    async def slow(ctx: Context, given: Any) -> Any:
        await asyncio.sleep(given / 1000)
        return {"waited": given}

    @made.query("nested")
    async def nested(ctx: Context) -> Any:
        async def later() -> Any:
            return {"v": 2}

        return {"now": 1, "later": later()}
