"""The client sends what can be sent again, under one key, and nothing else."""

import asyncio
import gc
import inspect
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from flaky import Answer, Fault, Flaky, flaky, problem
from semel import errors
from semel.client import AsyncClient, Client, Patience, Problem, tried
from semel.edges.client import blocking

HASTE = Patience(first=0.001, longest=0.001)


@pytest.fixture
def server() -> Iterator[Flaky]:
    with flaky() as here:
        yield here


class Caller:
    """A client of either kind, called in one way."""

    def __init__(self, kind: str, runner: asyncio.Runner, **options: Any) -> None:
        options.setdefault("patience", HASTE)
        options.setdefault("trust_env", False)
        self._runner = runner
        self.client: Any = {"blocking": Client, "awaited": AsyncClient}[kind](**options)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **options: self.run(getattr(self.client, name)(*args, **options))

    def run(self, what: Any) -> Any:
        async def wait() -> Any:
            return await what

        return self._runner.run(wait()) if inspect.isawaitable(what) else what

    def close(self) -> None:
        self.run(
            self.client.aclose() if hasattr(self.client, "aclose") else self.client.close()
        )


Calling = Callable[..., Caller]


@pytest.fixture(params=["blocking", "awaited"])
def caller(request: pytest.FixtureRequest, server: Flaky) -> Iterator[Calling]:
    made: list[Caller] = []
    with asyncio.Runner() as runner:

        def make(**options: Any) -> Caller:
            made.append(Caller(request.param, runner, base_url=server.url, **options))
            return made[-1]

        yield make
        for each in made:
            each.close()


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that clients would have made."""
    pauses: list[float] = []

    class Clock:
        sleep = staticmethod(pauses.append)

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(blocking, "time", Clock)
    monkeypatch.setattr("semel.edges.client.awaited.anyio.sleep", sleep)
    return pauses


PASSING: list[Answer | Fault] = [
    "drop",
    "cut",
    problem(409, "E-IDEMPOTENT-003", retryable=True),
    problem(409, "E-IDEMPOTENT-003"),
    problem(409, "E-LEASE-001", retryable=True),
    Answer(status=429),
    Answer(status=502, body=b"<html>", headers={"content-type": "text/html"}),
    Answer(status=503),
    Answer(status=504),
]


@pytest.mark.parametrize("act", PASSING, ids=str)
def test_a_post_is_sent_again_with_the_same_key_and_body(
    server: Flaky, caller: Calling, act: Answer | Fault
) -> None:
    server.acts = [act, act, Answer(headers={"Idempotent-Replayed": "true"})]
    answer = caller().post("/pay", json={"cents": 5})
    assert answer.status_code == 200
    first, *others = server.got
    assert [first] * 2 == others
    assert first.key is not None
    assert (first.key[0], first.key[-1]) == ('"', '"')
    assert tried(answer).tries == 3
    assert tried(answer).replayed
    assert tried(answer).key == first.key


FINAL = [
    problem(422, "E-IDEMPOTENT-002"),
    problem(409, "E-IDEMPOTENT-004"),
    problem(409, "E-IDEMPOTENT-005"),
    problem(400, "E-IDEMPOTENT-006"),
    problem(409, "E-IDEMPOTENT-007"),
    problem(503, "E-RUN-002"),  # says of itself that it will not change
]


@pytest.mark.parametrize("act", FINAL, ids=str)
def test_a_refusal_that_stays_is_not_asked_again(
    server: Flaky, caller: Calling, act: Answer
) -> None:
    server.acts = [act]
    with pytest.raises(Problem) as refused:
        caller().post("/pay")
    assert len(server.got) == 1
    assert not refused.value.retryable
    assert tried(refused.value).tries == 1


@pytest.mark.parametrize("status", [400, 404, 409, 422, 500])
def test_an_answer_without_a_problem_is_returned_as_httpx_does(
    server: Flaky, caller: Calling, status: int
) -> None:
    server.acts = [Answer(status=status)]
    answer = caller().post("/pay")
    assert (answer.status_code, len(server.got)) == (status, 1)
    with pytest.raises(httpx.HTTPStatusError):
        answer.raise_for_status()


def test_a_problem_is_an_error_of_its_code_on_either_side_of_the_wire(
    server: Flaky, caller: Calling
) -> None:
    server.acts = [problem(422, "E-IDEMPOTENT-002", reason="input_mismatch", detail="cents")]
    with pytest.raises(errors.KeyConflict) as refused:
        caller().post("/pay")
    error = refused.value
    assert isinstance(error, Problem)
    assert isinstance(error, httpx.HTTPStatusError)
    assert (error.code, error.reason, error.detail) == (
        "E-IDEMPOTENT-002",
        "input_mismatch",
        "cents",
    )
    assert error.response.status_code == 422
    assert str(error) == "E-IDEMPOTENT-002 refused: cents"
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.code) == (type(error), error.code)


def test_a_code_of_a_newer_server_is_a_problem(server: Flaky, caller: Calling) -> None:
    server.acts = [problem(418, "E-TEA-001")]
    with pytest.raises(Problem) as refused:
        caller().post("/pay")
    assert (type(refused.value), refused.value.code) == (Problem, "E-TEA-001")


@pytest.mark.parametrize("body", [b"", b"[]", b"nothing", b"\xff", b"[" * 100_000])
def test_a_problem_that_is_none_is_an_answer(
    server: Flaky, caller: Calling, body: bytes
) -> None:
    media = {"content-type": "application/problem+json"}
    server.acts = [Answer(status=409, body=body, headers=media)]
    assert caller().post("/pay").status_code == 409


def test_problems_can_be_returned(server: Flaky, caller: Calling) -> None:
    server.acts = [problem(422, "E-IDEMPOTENT-002")]
    answer = caller(problems=False).post("/pay")
    assert answer.json()["code"] == "E-IDEMPOTENT-002"


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS"])
def test_a_request_without_a_key_is_sent_once(
    server: Flaky, caller: Calling, method: str
) -> None:
    server.acts = ["drop", Answer(status=503)]
    calls = caller()
    with pytest.raises(httpx.RemoteProtocolError):
        calls.request(method, "/it")
    assert calls.request(method, "/it").status_code == 503
    assert [got.key for got in server.got] == [None, None]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_safe_request_is_sent_again_without_a_key(
    server: Flaky, caller: Calling, method: str
) -> None:
    server.acts = ["drop", Answer(status=503, body=b""), Answer(body=b"")]
    answer = caller().request(method, "/it")
    assert [got.key for got in server.got] == [None] * 3
    assert tried(answer).tries == 3
    assert tried(answer).key is None


@pytest.mark.parametrize("name", ["Idempotency-Key", "idempotency_key"])
def test_a_key_of_the_caller_is_left_as_it_is(
    server: Flaky, caller: Calling, name: str
) -> None:
    server.acts = ["drop"]
    answer = caller().post("/pay", headers={name: "order-17"})
    for got in server.got:
        keys = [pair for pair in got.headers if pair[0].startswith("idempotency")]
        assert keys == [(name.lower(), "order-17")]
    assert tried(answer).key == "order-17"


def test_an_empty_key_is_refused_before_anything_is_sent(
    server: Flaky, caller: Calling
) -> None:
    with pytest.raises(errors.BadKey):
        caller().post("/pay", headers={"Idempotency-Key": " "})
    assert not server.got


def test_two_posts_have_two_keys_and_one_request_has_one(
    server: Flaky, caller: Calling
) -> None:
    calls = caller()
    calls.post("/pay")
    calls.post("/pay")
    request = calls.client.build_request("PATCH", "/pay")
    calls.send(request)
    calls.send(request)
    first, second, third, fourth = (got.key for got in server.got)
    assert first != second != third == fourth


def test_a_body_that_can_be_read_once_is_sent_whole_each_time(
    server: Flaky, caller: Calling
) -> None:
    server.acts = ["drop", "drop"]
    calls = caller()

    async def awaited_parts() -> Any:
        yield b"one"
        yield b"two"

    blocks = isinstance(calls.client, Client)
    calls.post("/pay", content=iter([b"one", b"two"]) if blocks else awaited_parts())
    assert [got.body for got in server.got] == [b"onetwo"] * 3


def test_an_upload_is_the_same_bytes_each_time(server: Flaky, caller: Calling) -> None:
    server.acts = ["drop"]
    caller().post("/pay", files={"bill": ("bill.txt", b"500")})
    first, second = server.got
    assert first == second
    assert b"500" in first.body


def test_after_the_last_try_the_error_is_httpx_s_own(server: Flaky, caller: Calling) -> None:
    server.acts = ["drop"] * 9
    patience = Patience(tries=3, first=0.001)
    with pytest.raises(httpx.RemoteProtocolError) as gone:
        caller(patience=patience).post("/pay")
    assert tried(gone.value).tries == len(server.got) == 3
    assert tried(gone.value).key == server.got[0].key
    assert gone.value.__notes__ == ["tries: 3"]


def test_after_the_last_try_the_answer_is_the_last_one(server: Flaky, caller: Calling) -> None:
    server.acts = [Answer(status=503), Answer(status=503), Answer(status=502)]
    answer = caller(patience=Patience(tries=3, first=0.001)).post("/pay")
    assert (answer.status_code, tried(answer).tries) == (502, 3)


def test_in_flight_to_the_end_is_raised_as_retryable(server: Flaky, caller: Calling) -> None:
    server.acts = [problem(409, "E-IDEMPOTENT-003", retryable=True)] * 2
    with pytest.raises(Problem) as refused:
        caller(patience=Patience(tries=2, first=0.001)).post("/pay")
    assert refused.value.retryable
    assert tried(refused.value).tries == 2


def test_a_server_that_is_not_there_is_tried_again(caller: Calling, server: Flaky) -> None:
    with pytest.raises(httpx.ConnectError) as gone:
        caller(patience=Patience(tries=3, first=0.001)).post("http://127.0.0.1:1/pay")
    assert tried(gone.value).tries == 3
    assert not server.got


def test_an_answer_that_does_not_come_is_asked_for_again(
    server: Flaky, caller: Calling
) -> None:
    server.acts = ["hold"]
    answer = caller(timeout=0.2).post("/pay")
    assert tried(answer).tries == 2


def test_the_deadline_ends_a_try_that_has_no_timeout_of_its_own(
    server: Flaky, caller: Calling
) -> None:
    server.acts = ["hold"]
    with pytest.raises(httpx.ReadTimeout) as late:
        caller(timeout=None, patience=Patience(deadline=0.2)).post("/pay")
    assert tried(late.value).tries == 1


def test_what_the_server_asks_for_is_waited_for(
    server: Flaky, caller: Calling, slept: list[float]
) -> None:
    date = "Mon, 30 Nov 2026 10:44:30 GMT"
    server.acts = [
        Answer(status=429, headers={"retry-after": "7"}),
        Answer(
            status=503,
            headers={"date": date, "retry-after": "Mon, 30 Nov 2026 10:44:41 GMT"},
        ),
        Answer(status=503, headers={"date": date, "retry-after": date}),
        Answer(status=503, headers={"retry-after": "soon"}),
    ]
    assert caller().post("/pay").status_code == 200
    assert [int(pause) for pause in slept] == [7, 11, 0, 0]


def test_a_pause_that_would_pass_the_deadline_is_not_begun(
    server: Flaky, caller: Calling, slept: list[float]
) -> None:
    server.acts = [Answer(status=503, headers={"retry-after": "3600"})]
    answer = caller().post("/pay")
    assert (answer.status_code, len(server.got), slept) == (503, 1, [])


def test_a_stream_is_tried_again_until_its_headers_are_there(
    server: Flaky, caller: Calling
) -> None:
    server.acts = [
        "drop",
        problem(409, "E-IDEMPOTENT-003", retryable=True),
        Answer(body=b"[1]"),
    ]
    calls = caller()
    request = calls.client.build_request("POST", "/pay")
    answer = calls.send(request, stream=True)
    assert not answer.is_stream_consumed
    body = answer.read if isinstance(calls.client, Client) else answer.aread
    assert calls.run(body()) == b"[1]"
    assert tried(answer).tries == 3


def test_nothing_stays_open_after_a_try_that_failed(
    server: Flaky, caller: Calling, recwarn: pytest.WarningsRecorder
) -> None:
    server.acts = ["cut", Answer(status=503), "drop"]
    caller(limits=httpx.Limits(max_connections=1)).post("/pay")
    gc.collect()
    assert not recwarn.list


def test_a_redirect_keeps_the_key(server: Flaky, caller: Calling) -> None:
    server.acts = [Answer(status=307, headers={"location": "/there"}), "drop"]
    caller(follow_redirects=True).post("/pay", json=1)
    assert [got.line.split()[1] for got in server.got] == ["/pay", "/there", "/pay"]
    assert len({(got.key, got.body) for got in server.got}) == 1


def test_a_cancelled_request_goes_on_under_its_key(server: Flaky) -> None:
    async def play() -> None:
        async with AsyncClient(base_url=server.url, patience=HASTE, trust_env=False) as client:
            pay = client.action("pay", "order-17")
            server.acts = ["hold"]
            task = asyncio.create_task(pay.post("/pay"))
            await asyncio.to_thread(server.asked.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await pay.post("/pay")

    asyncio.run(play())
    first, second = server.got
    assert first.key == second.key
