"""What of a request is its key, its procedure and its input, and what is kept of an answer."""

import json
from typing import Any

import pytest

from semel import errors
from semel.core.digest import input_digest
from semel.edges.operation import Operation
from semel.edges.rest import answer, key, refusal
from semel.edges.rest import input as inputs
from semel.edges.rest.asked import Asked
from semel.edges.rest.conclusion import conclude
from semel.edges.rest.rules import Rules
from semel.errors import BadConfig, BadKey, BadRequest, SemelError, Unauthenticated

RULES = Rules(project="shop")
JSON = ("content-type", "application/json")


def asked(body: bytes = b"", *headers: tuple[str, str], **changes: Any) -> Asked:
    changes.setdefault("method", "POST")
    changes.setdefault("path", "/payments")
    return Asked(headers=headers or (JSON,), body=body, **changes)


def digest(request: Asked, rules: Rules = RULES) -> str:
    named = rules.operation is not None
    return inputs.of(request, rules.keys, named=named).envelopes()[0]["digest"]


def form(boundary: str, *parts: tuple[str, bytes]) -> Asked:
    pieces = [
        f"--{boundary}\r\n{head}\r\n\r\n".encode() + content + b"\r\n"
        for head, content in parts
    ]
    body = b"".join(pieces) + f"--{boundary}--\r\n".encode()
    return asked(body, ("content-type", f'multipart/form-data; boundary="{boundary}"'))


FIELD = 'Content-Disposition: form-data; name="{}"'
FILE = 'Content-Disposition: form-data; name="f"; filename="{}"\r\nContent-Type: {}'


# -- keys -----------------------------------------------------------------------------------


@pytest.mark.parametrize("line", ['"k"', "k", ' "k" ', '"k";v=1', '"k"; a="x;y" ;b=?1'])
def test_every_spelling_of_a_key_is_one_key(line: str) -> None:
    assert key.find(RULES, "POST", [("idempotency-key", line)]) == "k"


@pytest.mark.parametrize(
    "lines",
    [
        [""],
        ['""'],
        ["k" * 256],
        ["ключ"],
        ["a,b"],
        ['"a", "b"'],
        ["a;b"],
        ['a"b'],
        ["a\\b"],
        ['"a" b'],
        ["a\x7fb"],
        ["k", "k"],
    ],
)
def test_what_is_no_key_is_refused(lines: list[str]) -> None:
    with pytest.raises(BadKey):
        key.find(RULES, "POST", [("idempotency-key", line) for line in lines])


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"])
def test_only_post_and_patch_are_operations(method: str) -> None:
    strict = Rules(project="shop", require_key=True)
    assert key.find(strict, method, [("idempotency-key", '"broken')]) is None
    assert key.find(strict, "PATCH", [("idempotency-key", "k")]) == "k"


def test_a_missing_key_is_refused_only_where_it_is_required() -> None:
    assert key.find(RULES, "POST", []) is None
    with pytest.raises(BadKey) as missing:
        key.find(Rules(project="shop", require_key=True), "POST", [])
    assert json.loads(refusal.answer(missing.value)[2])["reason"] == "key_missing"


def identity(actor: object, rules: Rules = RULES) -> Any:
    return rules.who(asked(b"{}"), actor, "k").identity.actor


def test_nobody_is_refused_unless_anonymity_is_shared() -> None:
    with pytest.raises(Unauthenticated):
        identity(None)
    assert identity(None, Rules(project="shop", anonymous="shared")) is None
    assert identity(7) == "7"
    for bad in ("", "a\0b", "x" * 513):
        with pytest.raises(BadRequest):
            identity(bad)


# -- procedures and inputs ------------------------------------------------------------------


def test_a_json_body_has_the_public_digest() -> None:
    assert digest(asked(b'{"b":2, "a":1.0}')) == input_digest(b'{"a":1,"b":2}')
    assert digest(asked(b"")) == input_digest(None)
    assert digest(asked(b"[1]", ("content-type", "application/vnd.api+json; v=1"))) == (
        input_digest(b"[1]")
    )


@pytest.mark.parametrize(
    "body", [b"{", b"NaN", b"[1e400]", b"\xff", b'{"a":1,"a":2}', b"[" * 5000, b"9" * 5000]
)
def test_a_body_that_is_not_what_it_says_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest):
        digest(asked(body))


def test_a_form_is_its_parts_and_not_its_boundary() -> None:
    parts = [
        (FIELD.format("a"), b"1"),
        (FILE.format("x.png", "image/png"), b"\r\n--almost\r\n\0"),
    ]
    one = digest(form("b1", *parts))
    assert one == digest(form("another", *parts))
    others = [
        form("b1", (FIELD.format("a"), b"2"), parts[1]),
        form("b1", (FIELD.format("b"), b"1"), parts[1]),
        form("b1", parts[0], (FILE.format("y.png", "image/png"), parts[1][1])),
        form("b1", parts[0], (FILE.format("x.png", "image/jpeg"), parts[1][1])),
        form("b1", parts[0], (parts[1][0], parts[1][1] + b"\0")),
        form("b1", parts[0]),
    ]
    assert len({one, *map(digest, others)}) == 1 + len(others)


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("multipart/form-data", b"--b\r\n\r\n\r\n--b--"),
        ("multipart/form-data; boundary=b", b"--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b--"),
        ("multipart/form-data; boundary=b", b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\nx'),
        ("multipart/form-data; boundary=b", b"--b\r\nno head\r\n--b--"),
        ("multipart/form-data; boundary=b", b"what"),
    ],
)  # fmt: skip
def test_a_broken_form_is_refused(content_type: str, body: bytes) -> None:
    with pytest.raises(BadRequest):
        digest(asked(body, ("content-type", content_type)))


def test_a_form_of_fields_is_its_fields() -> None:
    fields = ("content-type", "application/x-www-form-urlencoded")
    assert digest(asked(b"a=1&b=%20", fields)) == digest(asked(b"a=1&b=+", fields))
    assert digest(asked(b"a=1&b=", fields)) != digest(asked(b"a=1", fields))
    with pytest.raises(BadRequest):
        digest(asked(b"a&" * 20_000, fields))


def test_the_bytes_of_a_field_are_one_field_as_they_stand_and_escaped() -> None:
    fields = ("content-type", "application/x-www-form-urlencoded")
    escaped = digest(asked(b"a=%C3%A9", fields))
    assert digest(asked(b"a=\xc3\xa9", fields)) == escaped
    assert digest(asked(b"a=\xe9", fields)) != escaped


def test_other_media_are_their_bytes() -> None:
    octets = ("content-type", "application/octet-stream")
    assert digest(asked(b"{ }", octets)) != digest(asked(b"{}", octets))
    assert digest(asked(b"\xff\0", octets)) == digest(asked(b"\xff\0", ("x", "no type")))


def test_the_query_counts_and_so_does_the_path() -> None:
    plain = digest(asked(b"{}"))
    assert (
        len({plain, digest(asked(b"{}", query="a=1")), digest(asked(b"{}", query="a=2"))}) == 3
    )
    assert inputs.procedure(None, asked(path="/a%20b")) == "POST /a%20b"
    assert inputs.procedure(None, asked(method="PATCH", path="/a")) == "PATCH /a"


def test_of_a_named_operation_the_parts_of_the_path_count() -> None:
    named = Rules(project="shop", operation="deposit")
    one, other = (asked(b"{}", path=f"/accounts/{n}", params={"id": n}) for n in "12")
    assert inputs.procedure(named.operation, one) == "deposit"
    assert digest(one, named) != digest(other, named)
    assert digest(one) == digest(other)  # the procedure tells them apart


def test_a_long_path_is_a_procedure_too() -> None:
    one, other = (asked(path="/" + "x" * 9000 + end) for end in "12")
    names = {inputs.procedure(None, each) for each in (one, other)}
    assert len(names) == 2
    assert all(len(name.encode()) <= 512 for name in names)


# -- answers --------------------------------------------------------------------------------


def test_an_answer_keeps_what_describes_it_and_no_cookie() -> None:
    lines = [
        ("Content-Type", "text/plain"),
        ("Set-Cookie", "a=1"),
        ("Link", "<a>"),
        ("Link", "<b>"),
        ("Date", "now"),
        ("X-Own", "1"),
    ]
    reply, gone = answer.kept(RULES, 201, lines, b"x")
    assert (reply.status, reply.body, gone) == (201, b"x", False)
    assert reply.headers == [("Content-Type", "text/plain"), ("Link", "<a>"), ("Link", "<b>")]
    named = Rules(project="shop", keep=("Set-Cookie", "x-own"))
    assert len(answer.kept(named, 201, lines, b"x")[0].headers) == 5


def test_a_cookie_of_a_reply_is_sent_and_not_kept() -> None:
    lines = [("Set-Cookie", "a=1"), ("X-Own", "1")]
    for rules, kept in (
        (RULES, lines[1:]),
        (Rules(project="shop", keep=("set-cookie",)), lines),
    ):
        op = Operation("shop", "k")
        op.reply(b"x", headers=[("Content-Type", "a/b"), *lines])
        conclude(rules, op, 200, [], b"")
        op.end()
        assert op.response().headers[1:] == lines
        assert op.kept[0].headers[1:] == kept


def test_a_long_answer_leaves_a_tombstone() -> None:
    reply, gone = answer.kept(Rules(project="shop", answer_bytes_max=3), 200, [], b"1234")
    assert (gone, reply.body) == (True, b"")


@pytest.mark.parametrize(
    "rule",
    [
        {"keep": ("Content-Length",)},
        {"commit": (200,)},
        {"commit": (600,)},
        {"anonymous": "yes"},
        {"operation": ""},
        {"operation": "x" * 513},
        {"body_bytes_max": -1},
        {"store": "nowhere"},
    ],
)
def test_an_impossible_rule_is_refused_where_it_is_written(rule: dict[str, Any]) -> None:
    with pytest.raises(BadConfig):
        Rules(project="shop", **rule)


@pytest.mark.parametrize(
    ("error", "status", "reason", "retry_after"),
    [
        (errors.KeyConflict, 422, "input_mismatch", None),
        (errors.InFlight, 409, "in_progress", "1"),
        (errors.NeedsReconcile, 409, "unknown_outcome", None),
        (errors.ResultNotKept, 409, "result_too_large", None),
        (errors.LegacyUnverifiable, 409, "legacy_unverifiable", None),
        (errors.BadKey, 400, "key_malformed", None),
        (errors.DatabaseUnreachable, 503, None, "5"),
        (errors.Unauthenticated, 401, None, None),
    ],
)
def test_a_refusal_says_code_reason_and_when_to_come_back(
    error: type[SemelError], status: int, reason: str | None, retry_after: str | None
) -> None:
    said, lines, body = refusal.answer(error("why"))
    problem = json.loads(body)
    assert (said, problem["status"]) == (status, status)
    assert (problem["code"], problem["retryable"]) == (error.code, error.retryable)
    assert problem.get("reason") == reason
    assert dict(lines).get("Retry-After") == retry_after
    assert dict(lines)["Content-Type"] == "application/problem+json"
