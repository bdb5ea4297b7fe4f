"""What every front end of the ledger answers over real HTTP, on a real PostgreSQL."""

from typing import Any

import httpx
import pytest

from fix_rest import everywhere, where_atomic, where_recorded
from fix_world import Conn, until
from rest_servers import Client
from rest_shop import LINKS, Shop, operations, rows

KEPT = ("content-type", "location", "etag")


def replayed(response: httpx.Response) -> bool:
    return str(response.headers.get("idempotent-replayed")) == "true"


def code(response: httpx.Response) -> str:
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["status"] == response.status_code
    return str(problem["code"])


def do(act: str) -> dict[str, Any]:
    return {"key": "k", "headers": {"X-Do": act}}


# -- replay ---------------------------------------------------------------------------------


@everywhere
def test_a_retry_is_answered_by_the_first_answer_to_the_byte(
    client: Client, ledger: Conn
) -> None:
    first = client.post("/payments", '{"cents": 5, "to": "bob"}', key="k")
    again = client.post("/payments", '{"to":"bob","cents":5.0}', key='"k"; v=1')

    assert (first.status_code, again.status_code) == (201, 201)
    assert first.content == again.content
    assert [first.headers[n] for n in KEPT] == [again.headers[n] for n in KEPT]
    assert first.headers.get_list("link") == again.headers.get_list("link")
    assert ", ".join(again.headers.get_list("link")) == ", ".join(v for _, v in LINKS)
    assert (replayed(first), replayed(again)) == (False, True)
    assert first.headers["idempotency-attempts"] == again.headers["idempotency-attempts"] == "1"
    assert rows(ledger) == 1
    assert operations(ledger) == [("SUCCEEDED", 1)]
    assert len(first.headers.get_list("set-cookie")) == 2
    assert "set-cookie" not in again.headers
    assert "x-own" not in again.headers


@everywhere
@pytest.mark.parametrize("act", ["empty", "binary", "stream", "card"])
def test_an_answer_of_any_kind_is_replayed(client: Client, ledger: Conn, act: str) -> None:
    first = client.post("/payments", **do(act))
    again = client.post("/payments", **do(act))

    assert (
        first.status_code
        == again.status_code
        == {"empty": 204, "card": 402}.get(act, 200 if act == "binary" else 201)
    )
    assert first.content == again.content
    assert (replayed(first), replayed(again)) == (False, True)
    assert again.headers.get("content-type") == first.headers.get("content-type")
    assert again.headers.get("etag") == first.headers.get("etag")
    assert rows(ledger) == 1


@everywhere
@pytest.mark.parametrize("act", ["big", "flood"])
def test_an_answer_too_long_to_keep_is_sent_once_and_never_executed_again(
    client: Client, ledger: Conn, act: str
) -> None:
    first = client.post("/payments", **do(act))
    again = client.post("/payments", **do(act))

    assert (first.status_code, len(first.content)) == (201, 5000 if act == "big" else 6000)
    assert (again.status_code, code(again)) == (409, "E-IDEMPOTENT-005")
    assert (again.json()["executed"], again.json()["retryable"]) == (True, False)
    assert again.json()["reason"] == "result_too_large"
    assert "retry-after" not in again.headers
    assert rows(ledger) == 1
    assert operations(ledger) == [("SUCCEEDED", 1)]


@everywhere
def test_what_runs_after_the_answer_runs_once_and_after_the_commit(
    client: Client, ledger: Conn
) -> None:
    for _ in range(2):
        assert client.post("/payments", **do("background")).status_code == 201
    client.post("/payments", key="another")

    until(lambda: rows(ledger, "note"))  # nobody waits for what runs after his answer
    assert rows(ledger, "note") == 1  # it saw the payment, and no replay made another
    assert rows(ledger) == 2


# -- errors ---------------------------------------------------------------------------------


@everywhere
@pytest.mark.parametrize(
    ("act", "status"), [("refuse", 422), ("raise", 500), ("fault", 503), ("http-refuse", 404)]
)
def test_an_error_is_kept_nowhere_and_executed_again(
    request: pytest.FixtureRequest, client: Client, ledger: Conn, act: str, status: int
) -> None:
    if act == "http-refuse" and "starlette" in request.node.callspec.params["client"]:
        act = "refuse"
        status = 422
    failed = client.post("/payments", **do(act))
    assert (failed.status_code, replayed(failed)) == (status, False)
    assert operations(ledger) == [("FAILED", 1)]
    before = rows(ledger)

    other = client.post("/payments", '{"cents": 9}', key="k")
    assert (other.status_code, code(other)) == (422, "E-IDEMPOTENT-002")
    assert (other.json()["reason"], other.json()["retryable"]) == ("input_mismatch", False)
    assert operations(ledger) == [("FAILED", 1)]

    again = client.post("/payments", key="k")
    assert (again.status_code, replayed(again)) == (201, False)
    assert again.headers["idempotency-attempts"] == "2"
    assert operations(ledger) == [("SUCCEEDED", 2)]
    assert rows(ledger) == before + 1


@where_atomic
@pytest.mark.parametrize("act", ["refuse", "raise", "fault", "deferred"])
def test_an_error_undoes_what_the_handler_wrote(client: Client, ledger: Conn, act: str) -> None:
    assert client.post("/payments", **do(act)).status_code >= 400
    assert rows(ledger) == rows(ledger, "strict") == 0
    assert operations(ledger) == [("FAILED", 1)]


@where_atomic
def test_a_lost_race_is_executed_again_whole(client: Client, ledger: Conn, shop: Shop) -> None:
    shop.races = 2
    answer = client.post("/payments", **do("race"))

    assert (answer.status_code, answer.headers["idempotency-attempts"]) == (201, "1")
    assert rows(ledger) == 1
    assert operations(ledger) == [("SUCCEEDED", 1)]


@where_atomic
def test_races_that_are_always_lost_are_the_clients_to_try_again(
    client: Client, ledger: Conn, shop: Shop
) -> None:
    shop.races = 99
    answer = client.post("/payments", **do("race"))

    assert (answer.status_code, code(answer)) == (409, "E-IDEMPOTENT-013")
    assert (answer.json()["retryable"], answer.headers["retry-after"]) == (True, "1")
    assert rows(ledger) == 0
    assert ("SUCCEEDED", 1) not in operations(ledger)


@where_atomic
def test_a_handler_that_commits_is_found_out_and_never_repeated(
    client: Client, ledger: Conn
) -> None:
    answer = client.post("/payments", **do("commit"))
    assert (answer.status_code, code(answer)) == (500, "E-IDEMPOTENT-008")
    again = client.post("/payments", key="k")
    assert (again.status_code, code(again)) == (409, "E-IDEMPOTENT-004")
    assert again.json()["reason"] == "unknown_outcome"
    assert rows(ledger) == 1


@where_atomic
def test_a_handler_may_reply_through_the_operation(client: Client, ledger: Conn) -> None:
    first = client.post("/payments", **do("reply"))
    again = client.post("/payments", **do("reply"))

    assert first.status_code == again.status_code == 402
    assert first.json() == again.json() == {"replied": 1}
    assert first.headers["x-said"] == again.headers["x-said"] == "1"
    assert (replayed(first), replayed(again)) == (False, True)
    assert rows(ledger) == 1


@where_atomic
def test_a_journal_is_written_once(client: Client, ledger: Conn) -> None:
    for _ in range(2):
        assert client.post("/payments", **do("journal")).status_code == 201
    found = ledger.execute("select topic, payload from semel.journal").fetchall()
    assert found == [("payments", {"id": 1})]


# -- conflicts ------------------------------------------------------------------------------


@everywhere
def test_a_key_is_of_one_input_and_one_procedure(client: Client, ledger: Conn) -> None:
    assert client.post("/payments", '{"cents": 1}', key="k").status_code == 201
    for method, path, body in [
        ("POST", "/payments", '{"cents": 2}'),
        ("POST", "/payments?x=1", '{"cents": 1}'),
        ("POST", "/others", '{"cents": 1}'),
        ("PATCH", "/payments", '{"cents": 1}'),
        ("POST", "/accounts/1/deposit", '{"cents": 1}'),
    ]:
        answer = client.send(method, path, body, key="k")
        assert (answer.status_code, code(answer)) == (422, "E-IDEMPOTENT-002"), path
    assert rows(ledger) == 1
    assert operations(ledger) == [("SUCCEEDED", 1)]


@everywhere
def test_a_part_of_the_path_that_varies_is_of_the_request(client: Client, ledger: Conn) -> None:
    assert client.post("/accounts/1/deposit", key="k").status_code == 201
    assert client.post("/accounts/2/deposit", key="k").status_code == 422
    assert replayed(client.post("/accounts/1/deposit", key="k"))
    assert rows(ledger) == 1


@everywhere
def test_another_users_key_is_another_key(client: Client, ledger: Conn) -> None:
    alice = client.post("/payments", key="k")
    bob = client.post("/payments", key="k", user="bob")

    assert not replayed(bob)
    assert alice.json()["id"] != bob.json()["id"]
    assert rows(ledger) == 2
    assert replayed(client.post("/payments", key="k", user="bob"))


@everywhere
@pytest.mark.parametrize(
    ("state", "same", "executed"),
    [("SUCCEEDED", 201, 0), ("PENDING", 201, 1), ("FAILED", 201, 1), ("PROCESSING", 409, 0)],
)
def test_what_is_there_decides(
    client: Client, ledger: Conn, state: str, same: int, executed: int
) -> None:
    """The table C4; a PROCESSING row whose input differs is told so, as every row is."""
    client.post("/payments", key="k")
    ledger.execute(
        "update semel.operation set status = %s, attempts = 3, mode = 'atomic', holder = null,"
        " reply_status = case %s when 'SUCCEEDED' then reply_status end",
        (state, state),
    )
    mismatch = client.post("/payments", '{"cents": 2}', key="k")
    assert mismatch.status_code == 422
    assert operations(ledger) == [(state, 3)]

    answer = client.post("/payments", key="k")
    assert answer.status_code == same
    assert replayed(answer) == (state == "SUCCEEDED")
    assert rows(ledger) == 1 + executed
    after = (state, 3) if not executed else ("SUCCEEDED", 4)
    assert operations(ledger) == [after]


# -- bad requests ---------------------------------------------------------------------------


@everywhere
def test_a_malformed_key_is_refused_and_nothing_looked_up(client: Client, ledger: Conn) -> None:
    ones = ["", '""', "k" * 256, "clé", '"open', "a,b", '"a", "b"', "a;b", "a\\b"]
    for key in [*ones, ["k", "k"], ["k", '"k"']]:
        answer = client.post("/payments", key=key)
        assert (answer.status_code, code(answer)) == (400, "E-IDEMPOTENT-006"), key
        assert answer.json()["reason"] == "key_malformed"
    assert rows(ledger) == 0
    assert operations(ledger) == []


@everywhere
def test_a_body_that_is_no_json_is_refused(client: Client, ledger: Conn) -> None:
    bodies = [b"{", b'{"cents": NaN}', b"[" * 3000, b"\xff\xfe", b'{"a":1,"a":2}', b'"\\ud800"']
    for body in [*bodies, b"1e999", b"9" * 4000, b"\xef\xbb\xbf[1]"]:
        answer = client.post("/payments", body, key="k")
        assert answer.status_code in {400, 422}, body
    assert rows(ledger) == 0
    assert operations(ledger) == []


@everywhere
def test_a_body_above_the_limit_is_refused(client: Client, ledger: Conn) -> None:
    answer = client.post("/payments", b" " * 4001, key="k")
    assert (answer.status_code, code(answer)) == (413, "E-REQUEST-002")
    assert operations(ledger) == []


@everywhere
def test_nobody_has_no_key(client: Client, ledger: Conn) -> None:
    answer = client.post("/payments", key="k", user=None)
    assert (answer.status_code, code(answer)) == (401, "E-AUTH-001")
    assert rows(ledger) == 0


@where_atomic
def test_a_decorated_route_requires_a_key(
    request: pytest.FixtureRequest, client: Client, ledger: Conn
) -> None:
    answer = client.post("/payments")
    if request.node.callspec.params["client"] == "starlette-taken":
        assert answer.status_code == 201  # of middleware that does not: no row tells of it
        assert (rows(ledger), operations(ledger)) == (1, [])
        assert client.post("/payments", headers={"X-Do": "refuse"}).status_code == 422
        assert rows(ledger) == 1
        return
    assert (answer.status_code, code(answer)) == (400, "E-IDEMPOTENT-006")
    assert answer.json()["reason"] == "key_missing"
    assert rows(ledger) == 0


@where_recorded
def test_middleware_leaves_a_request_without_a_key_alone(client: Client, ledger: Conn) -> None:
    for _ in range(2):
        answer = client.post("/payments", user=None)
        assert answer.status_code == 201
        assert "idempotency-attempts" not in answer.headers
    assert rows(ledger) == 2
    assert operations(ledger) == []


@everywhere
def test_other_methods_are_left_alone(client: Client, ledger: Conn) -> None:
    for method in ["GET", "PUT", "DELETE"] * 2:
        answer = client.send(method, "/payments", key='"broken')
        assert answer.status_code in {200, 201}
    assert rows(ledger) == 6
    assert operations(ledger) == []


# -- uploads --------------------------------------------------------------------------------


@everywhere
def test_an_upload_is_one_whatever_its_boundary(client: Client, ledger: Conn) -> None:
    def upload(boundary: str, content: bytes, name: str = "x.png") -> httpx.Response:
        parts: Any = {"name": (None, "me"), "file": (name, content, "image/png")}
        made = httpx.Request("POST", "http://x", files=parts, headers={
            "Content-Type": f"multipart/form-data; boundary={boundary}"})  # fmt: skip
        told = {"Content-Type": made.headers["content-type"]}
        return client.post("/uploads", made.read(), key="k", headers=told)

    first = upload("one", b"\x89PNG\r\n\0")
    again = upload("two", b"\x89PNG\r\n\0")

    assert (first.status_code, first.json()["bytes"]) == (201, 7)
    assert replayed(again)
    assert again.content == first.content
    assert upload("three", b"other").status_code == 422
    assert upload("four", b"\x89PNG\r\n\0", "y.png").status_code == 422
    assert rows(ledger) == 1
