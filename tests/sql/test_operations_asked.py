"""What an operation may be asked by, and what people read of it."""

import hashlib
from typing import Any

import pytest

from fix_world import Conn
from keyed import (
    asked,
    begin,
    close,
    put,
    rows,
    succeed,
)
from semel.core.operations import WAIT, Identity, Reply, base_id, operation_begin
from semel.db.execute import run
from semel.errors import BadKey, BadRequest

# -- what cannot be an operation -------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ({"key": ""}, BadKey),
        ({"key": "é" * 257}, BadKey),
        ({"what": ""}, BadRequest),
        ({"what": "é" * 257}, BadRequest),
        ({"who": ""}, BadRequest),
        ({"who": "é" * 257}, BadRequest),
        ({"project": "P"}, BadRequest),
        ({"project": "p" * 65}, BadRequest),
        ({"envelopes": []}, BadRequest),
        ({"envelopes": [{}]}, BadRequest),
        ({"envelopes": [{"version": 2}]}, BadRequest),
        ({"envelopes": [{"version": "2", "digest": "sha256:" + "a" * 64}]}, BadRequest),
        ({"envelopes": [{"version": 2, "digest": "md5:a"}]}, BadRequest),
    ],
)
def test_what_identifies_nothing_is_refused(
    conn: Conn, bad: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error) as refused:
        begin(conn, asked(**bad))
    assert error is type(refused.value)
    assert [] == rows(conn)


def test_ids_of_five_hundred_and_twelve_bytes_fit(conn: Conn) -> None:
    request = asked("é" * 256, what="é" * 256, who="é" * 256, project="p" * 64)
    assert "claimed" == begin(conn, request).outcome


@pytest.mark.parametrize(
    "how",
    [{"mode": "both"}, {"mode": None}, {"mode": "recorded"}, {"holder": "0" * 32}],
)
def test_a_mode_is_one_of_two(conn: Conn, how: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        run(conn, operation_begin(asked(), **how))


@pytest.mark.parametrize("status", [99, 600])
def test_a_reply_has_a_status(conn: Conn, status: int) -> None:
    with conn.transaction():
        begun = begin(conn)
        with pytest.raises(BadRequest), conn.transaction():
            close(conn, begun, Reply(status=status, headers=[], body=b""))
        for border in (100, 599):
            with conn.transaction(force_rollback=True):
                close(conn, begun, Reply(status=border, headers=[], body=b""))
        close(conn, begun)


# -- request ids -----------------------------------------------------------------------------


def test_a_base_id_is_the_seeds() -> None:
    parts = b"p\0ann\0k"
    assert f"http:{hashlib.sha256(parts).hexdigest()}" == base_id("p", "ann", "k")
    assert base_id("p", "ann", "k") == base_id("p", "ann", " k\t")
    assert base_id("p", None, "k") == base_id("p", "anonymous", "k")
    different = [("p", "ann", "k"), ("q", "ann", "k"), ("p", "bob", "k"), ("p", "ann", "l")]
    assert 4 == len({base_id(*each) for each in different})
    assert isinstance(asked(base_id("p", "ann", "k")), Identity)


# -- what people read ------------------------------------------------------------------------


def test_the_view_has_every_row_and_raises_for_none(conn: Conn) -> None:
    bodies = [b'{"a":1}', b"\xff", b"", b"1e999999", b'"\\u0000"', b"[" * 100_000]
    for n, body in enumerate(bodies):
        succeed(conn, asked(f"k{n}"), Reply(status=200, headers=[], body=body))
    put(conn, "engine", target="ENGINE", payload='"x"', status="FAILED")

    found = conn.execute("select result from semel.operations order by request_id").fetchall()

    assert [None, {"a": 1}, None, None, None, None, None] == [value for [value] in found]


def test_results_are_granted_apart(conn: Conn) -> None:
    succeed(conn)
    conn.execute("create role reader_of_results in role semel_client")
    read = "select result, reply_headers, reply_status from semel.operations"
    try:
        conn.execute("set role reader_of_results")
        assert [(None, None, 201)] == conn.execute(read).fetchall()
        conn.execute("reset role")
        conn.execute("grant select (reply_body) on semel.operation to reader_of_results")
        conn.execute("set role reader_of_results")
        headers = [["content-type", "application/json"]]
        assert [({"id": 1}, headers, 201)] == conn.execute(read).fetchall()
    finally:
        conn.execute("reset role")
        conn.execute("drop owned by reader_of_results")
        conn.execute("drop role reader_of_results")


# -- waiting ---------------------------------------------------------------------------------


@pytest.mark.parametrize("function", ["operation_begin", "operation_recover"])
def test_who_says_nothing_waits_as_long_as_the_function_itself_allows(
    conn: Conn, function: str
) -> None:
    """It sets no bound then; that of its definition holds, the same in SQL and in Python."""
    [[settings, arguments]] = conn.execute(
        "select proconfig, pg_get_function_arguments(oid) from pg_proc where proname = %s",
        (function,),
    ).fetchall()
    seconds = int(WAIT.total_seconds())
    assert f"lock_timeout={seconds} s" in settings
    assert f"p_wait interval DEFAULT '00:00:0{seconds}'::interval" in arguments
