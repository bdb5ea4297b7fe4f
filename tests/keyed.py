"""Requests under a key, as a service makes them: begun, worked at, finished or failed."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from fix_world import NOW, Conn
from semel.core.operations import (
    Begun,
    Identity,
    Recovered,
    Reply,
    operation_begin,
    operation_close,
    operation_fail,
    operation_recover,
)
from semel.db.execute import run

DONE = Reply(status=201, headers=[("content-type", "application/json")], body=b'{"id":1}')
LONG = timedelta(seconds=60)


def digest(value: Any) -> str:
    return f"sha256:{hashlib.sha256(json.dumps(value).encode()).hexdigest()}"


def envelope(value: Any = 1, version: int = 2) -> dict[str, Any]:
    return {"version": version, "digest": digest([version, value])}


def asked(
    key: str = "k", value: Any = 1, *, who: str | None = "ann", what: str = "pay", **more: Any
) -> Identity:
    """A request: *who* asks for *what* with the input *value*."""
    return Identity(
        project=more.pop("project", "p"),
        request_id=key,
        event_type=what,
        actor=who,
        envelopes=more.pop("envelopes", [envelope(value)]),
    )


def begin(conn: Conn, request: Identity | None = None, **more: Any) -> Begun:
    return run(conn, operation_begin(request or asked(), **{"now": NOW, **more}))


def close(conn: Conn, begun: Begun, reply: Reply = DONE, key: str = "k", **more: Any) -> None:
    assert begun.attempts
    assert begun.xid
    run(
        conn,
        operation_close("p", key, begun.attempts, begun.xid, reply, **{"now": NOW, **more}),
    )


def fail(conn: Conn, begun: Begun, error: str = "no funds", key: str = "k", **more: Any) -> str:
    assert begun.attempts
    call = operation_fail(
        "p", key, begun.attempts, begun.xid, code="APP", error=error, **{"now": NOW, **more}
    )
    return run(conn, call)


def recover(
    conn: Conn, attempt: int, xid: str | None, request: Identity | None = None, **more: Any
) -> Recovered:
    call = operation_recover(
        request or asked(),
        attempt,
        xid,
        code="LOST",
        error="connection lost",
        **{"now": NOW, **more},
    )
    return run(conn, call)


def succeed(conn: Conn, request: Identity | None = None, reply: Reply = DONE) -> Begun:
    """The whole of a mutation."""
    request = request or asked()
    with conn.transaction():
        begun = begin(conn, request)
        assert "claimed" == begun.outcome
        close(conn, begun, reply, request.request_id)
    return begun


def failed(conn: Conn, request: Identity | None = None, times: int = 1) -> None:
    request = request or asked()
    for _ in range(times):
        with conn.transaction():
            begun = begin(conn, request)
            assert "won" == fail(conn, begun, key=request.request_id)


def put(conn: Conn, key: str = "k", **columns: Any) -> None:
    """A row as another system, or an old one, may have left it."""
    told = {
        "project_id": "p",
        "request_id": key,
        "event_type": "pay",
        "actor_user_id": "ann",
        "payload": json.dumps(envelope()),
        "status": "PENDING",
        "attempts": 0,
        "created_at": NOW,
        "updated_at": NOW,
        **columns,
    }
    names = ", ".join(told)
    places = ", ".join(["%s"] * len(told))
    conn.execute(f"insert into semel.operation ({names}) values ({places})", [*told.values()])


def stored(conn: Conn, key: str = "k") -> dict[str, Any] | None:
    """The whole row, as it is in the table."""
    cursor = conn.execute("select * from semel.operation where request_id = %s", (key,))
    names = [column.name for column in cursor.description or ()]
    rows = cursor.fetchall()
    return dict(zip(names, rows[0], strict=True)) if rows else None


def state(conn: Conn, key: str = "k") -> tuple[str, int] | None:
    found = stored(conn, key)
    return (found["status"], found["attempts"]) if found else None


@contextmanager
def nothing_written(conn: Conn) -> Iterator[None]:
    """No transaction id, no WAL, no row."""
    with conn.transaction():
        before = rows(conn)
        yield
        [[xid]] = conn.execute("select pg_current_xact_id_if_assigned()").fetchall()
        assert xid is None
        assert before == rows(conn)


@contextmanager
def unchanged(conn: Conn) -> Iterator[None]:
    """Every row is the same version of itself; a lock may have been taken."""
    before = rows(conn)
    yield
    assert before == rows(conn)


def rows(conn: Conn) -> list[tuple[Any, ...]]:
    return conn.execute(
        "select o.*, xmin, ctid from semel.operation as o order by request_id"
    ).fetchall()


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)
