"""Requests that no client sends are answered with an error of theirs, and never with a 500."""

import asyncio
import json
from typing import Any

import pytest

from semel.errors import BadConfig, DatabaseUnreachable
from semel.trpc import Context, Request, Router, TRPCError
from trpc_asking import JSON, Answered, ask


def router(**options: Any) -> Router:
    made = Router(**options)

    @made.query("get")
    async def get(ctx: Context, given: Any) -> Any:
        return {"given": given, "has": ctx.has_input}

    @made.mutation("set")
    async def set_(ctx: Context, given: Any) -> Any:
        return {"given": given}

    @made.mutation("blind")
    async def blind(ctx: Context) -> Any:
        return 1

    @made.query("sync")
    def sync(ctx: Context) -> Any:
        return "in a thread"

    @made.query("bad")
    async def bad(ctx: Context) -> Any:
        return object()

    @made.query("down")
    async def down(ctx: Context) -> Any:
        raise DatabaseUnreachable("connection to 10.0.0.7 failed")

    @made.query("letters")
    async def letters(ctx: Context) -> Any:
        yield 1
        raise TRPCError("FORBIDDEN")

    @made.query("late")
    async def late(ctx: Context) -> Any:
        async def fails() -> Any:
            raise ValueError("late")

        return {"now": 1, "later": fails()}

    return made


def get(target: str, *, headers: Any = (), **options: Any) -> Answered:
    return asyncio.run(ask(router(**options).asgi(), "GET", target, headers=headers))


def post(target: str, body: bytes = b"", *, headers: Any = (JSON,), **options: Any) -> Answered:
    return asyncio.run(ask(router(**options).asgi(), "POST", target, body, headers))


def code(answer: Answered) -> str:
    told = answer.json
    return str((told[0] if isinstance(told, list) else told)["error"]["data"]["code"])


def test_a_query_may_come_by_post_where_that_is_allowed_and_is_none_the_less_a_query() -> None:
    assert code(post("/get", b"1")) == "METHOD_NOT_SUPPORTED"
    answer = post("/get", b"1", method_override=True, headers=[JSON, ("idempotency-key", "k")])
    assert answer.json == {"result": {"data": {"given": 1, "has": True}}}
    assert code(get("/set", method_override=True)) == "METHOD_NOT_SUPPORTED"
    assert get("/set").headers["allow"] == "POST"


def test_calls_of_both_kinds_in_one_batch_are_refused_as_a_whole() -> None:
    answer = post("/set,get?batch=1", b"{}")
    assert (answer.status, answer.json["error"]["data"]["code"]) == (400, "BAD_REQUEST")
    ten = post("/set,get?batch=1", b"{}", version=10)
    assert (ten.status, ten.json[1]["error"]["data"]["code"]) == (207, "NOT_FOUND")


@pytest.mark.parametrize("target", ["/%zz", "/get%", "/get%E0%A4%A"])
def test_a_path_that_is_no_text_is_a_bad_request(target: str) -> None:
    answer = get(target)
    assert (answer.status, code(answer)) == (400, "BAD_REQUEST")


@pytest.mark.parametrize(
    "body",
    [b"{", b"[NaN]", b"Infinity", b"'a'", b"\xff", b'"\xff"', b"[" * 100_000, b"\x00", b"1 2"],
)
@pytest.mark.parametrize("version", [10, 11])
def test_a_body_that_is_no_json_is_a_bad_request(body: bytes, version: Any) -> None:
    answer = post("/set", body, version=version)
    assert answer.status == 400
    assert code(answer) == ("BAD_REQUEST" if version == 11 else "PARSE_ERROR")
    batch = post("/set?batch=1", body, version=version)
    assert batch.status == 400


def test_a_procedure_that_reads_no_input_does_not_care_what_it_is() -> None:
    assert post("/blind", b"{").json == {"result": {"data": 1}}


def test_a_byte_order_mark_is_skipped_and_an_odd_index_is_none() -> None:
    assert post("/set", b"\xef\xbb\xbf[1]").json == {"result": {"data": {"given": [1]}}}
    answer = post("/set?batch=1", b'{"00":1,"x":2}')
    assert answer.json == [{"result": {"data": {"given": None}}}]


def test_long_integers_and_deep_inputs_are_what_javascript_makes_of_them() -> None:
    assert post("/set", b"1" * 5000).json == {"result": {"data": {"given": None}}}
    deep = b"[" * 150 + b"]" * 150
    assert post("/set", deep).status == 200
    assert post("/set", b"[" * 250 + b"]" * 250).status == 400


def test_too_large_a_body_is_told_for_each_call_and_not_read() -> None:
    answer = post("/set,set?batch=1", b"x" * 101, body_bytes_max=100)
    assert answer.status == 413
    assert [one["error"]["data"]["path"] for one in answer.json] == ["set", "set"]


def test_more_calls_than_a_batch_may_have_are_refused() -> None:
    assert post(f"/{','.join(['set'] * 3)}?batch=1", b"{}", batch_max=2).status == 400


@pytest.mark.parametrize(
    "media", ["text/plain", "application/jsonx", "", "application/x-www-form-urlencoded"]
)
def test_any_other_media_type_is_unsupported(media: str) -> None:
    assert (
        code(post("/set", b"{}", headers=[("content-type", media)])) == "UNSUPPORTED_MEDIA_TYPE"
    )


def test_a_form_without_its_boundary_is_a_bad_request() -> None:
    answer = post("/set", b"abc", headers=[("content-type", "multipart/form-data")])
    assert (answer.status, code(answer)) == (400, "BAD_REQUEST")


def test_a_handler_that_is_no_coroutine_runs_in_a_thread() -> None:
    assert get("/sync").json == {"result": {"data": "in a thread"}}


def test_a_result_that_is_no_json_and_a_database_that_is_down_are_the_servers_faults() -> None:
    assert get("/bad").status == 500
    down = get("/down")
    assert down.status == 503
    assert down.json["retryable"] is down.json["error"]["data"]["retryable"] is True
    assert down.headers["content-type"] == "application/problem+json"
    assert down.headers["retry-after"]
    assert b"10.0.0.7" not in down.body


LINES = [("trpc-accept", "application/jsonl")]


def test_an_error_in_the_middle_of_a_stream_ends_that_stream_alone() -> None:
    answer = get("/letters,late,get?batch=1&input={}", headers=LINES)
    lines = [json.loads(line) for line in answer.body.splitlines()]
    told = {chunk[1]: chunk[2] for chunk in lines[1:] if isinstance(chunk[2], dict)}
    assert told[2]["data"]["code"] == "FORBIDDEN"
    assert told[1]["message"] == "late"
    assert [[{"given": None, "has": False}]] in [chunk[2] for chunk in lines[1:]]


def test_a_query_that_streams_is_refused_where_nobody_reads_a_stream() -> None:
    assert code(get("/letters")) == "UNSUPPORTED_MEDIA_TYPE"
    assert code(get("/late")) == "UNSUPPORTED_MEDIA_TYPE"


def test_the_application_is_mounted_anywhere() -> None:
    app = router().asgi("/trpc")
    assert asyncio.run(ask(app, "GET", "/trpc/get", headers=())).status == 200
    mounted = asyncio.run(ask(router().asgi(), "GET", "/api/get", headers=(), root_path="/api"))
    assert mounted.status == 200


# -- who asks -------------------------------------------------------------------------------


def test_a_context_that_refuses_answers_for_the_whole_request() -> None:
    async def context(request: Request) -> Any:
        raise TRPCError("UNAUTHORIZED", "sign in")

    answer = post("/set,set?batch=1", b"{}", context=context)
    assert (answer.status, answer.json["error"]["message"]) == (401, "sign in")
    assert get("/get?batch=1&input={}", headers=LINES, context=context).status == 401


def test_who_may_not_is_told_so_after_the_input_was_read_and_before_anything_happens() -> None:
    asked = []

    def authorize(ctx: Context, given: Any) -> bool:
        asked.append((ctx.path, given))
        return False

    answer = post("/set", b"7", authorize=authorize)
    assert (answer.status, code(answer)) == (403, "FORBIDDEN")
    assert asked == [("set", 7)]


def test_a_parser_makes_the_input_and_what_it_raises_is_a_bad_request() -> None:
    made = Router()

    class Model:
        @staticmethod
        def model_validate(value: Any) -> Any:
            if value == 1:
                raise ValueError("not 1")
            return {"made of": value}

    @made.mutation("set", input=Model)
    async def set_(ctx: Context, given: Any) -> Any:
        return given

    app = made.asgi()
    assert asyncio.run(ask(app, "POST", "/set", b"2")).json["result"]["data"] == {"made of": 2}
    bad = asyncio.run(ask(app, "POST", "/set", b"1"))
    assert (bad.status, bad.json["error"]["message"]) == (400, "not 1")


def test_an_impossible_router_is_refused_where_it_is_written() -> None:
    made = router()
    with pytest.raises(BadConfig, match="already"):
        made.query("get")(lambda ctx: None)
    with pytest.raises(BadConfig, match="no procedure's path"):
        made.query("a,b")(lambda ctx: None)
    for options in (
        {"keys": "first"},
        {"transformer": "json"},
        {"pool": 7},
        {"anonymous": "yes"},
    ):
        with pytest.raises(BadConfig):
            Router(**options).asgi()
    with pytest.raises(ValueError, match="no code of tRPC"):
        TRPCError("OOPS")
