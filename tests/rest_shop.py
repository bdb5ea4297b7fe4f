"""
One shop, which every framework's application under test is.

    POST  /payments               inserts a payment, and does as the header X-Do says (ACTS)
    PATCH /payments               the same
    POST  /accounts/{id}/deposit  the same; its path has a part that varies
    POST  /uploads                the same, of a multipart form with a field `name` and a file `file`
    GET, PUT, DELETE /payments    insert a payment too, so that a second execution shows

X-Do is a header, hence no part of the input: a retry may do otherwise than the first request.
"""

import json
import threading
from dataclasses import dataclass, field
from typing import Any

import psycopg

from fix_world import Conn
from semel.errors import UnknownOutcome

TABLES = """
create table payment (id int generated always as identity, what text not null);
create table note (what text not null);
create table strict (id int primary key deferrable initially deferred);
"""

RACE = "do $$ begin raise exception using errcode = '40001'; end $$"
SQL = {
    "deferred": "insert into strict values (1), (1)",
    "commit": "commit",
    "lock": "select pg_advisory_xact_lock(1)",
}
LINKS = [("Link", '<a>; rel="x,y"'), ("Link", "<b>")]


@dataclass(frozen=True)
class Answer:
    status: int = 201
    body: bytes = b""
    headers: list[tuple[str, str]] = field(default_factory=list)
    stream: bool = False


class Boom(Exception):
    """A fault of the handler."""


class Gate:
    """Where a handler waits, after it has written."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()

    def wait(self) -> None:
        self.reached.set()
        assert self.open.wait(20)


@dataclass
class Shop:
    """What handlers do beside their SQL."""

    gate: Gate = field(default_factory=Gate)
    races: int = 0  # that are lost yet

    def sql(self, act: str) -> str | None:
        """What a handler executes beside its insert."""
        if act == "race":
            self.races -= 1
            return RACE if self.races >= 0 else None
        return SQL.get(act)

    def fail(self, act: str) -> None:
        """Raise, where the act is to."""
        match act:
            case "raise":
                raise Boom("a fault of the handler")
            case "lost":
                raise psycopg.OperationalError("the connection is lost")
            case "unknown":
                raise UnknownOutcome("the connection was lost at COMMIT")
            case _:
                pass


def answer(act: str, payment_id: int, body: bytes) -> Answer:  # noqa: PLR0911 - one for each act
    """What a handler answers that has inserted payment *payment_id*."""
    shown = json.dumps({"id": payment_id, "bytes": len(body), "text": "é\u0000"}).encode()
    headers = [
        ("Content-Type", "application/json"),
        ("Location", f"/payments/{payment_id}"),
        ("ETag", f'"v{payment_id}"'),
        *LINKS,
        ("Set-Cookie", "session=secret; Path=/"),
        ("Set-Cookie", "other=1"),
        ("X-Own", "1"),
    ]
    match act:
        case "refuse":
            return Answer(422, shown, headers)
        case "card":
            return Answer(402, shown, headers)
        case "fault":
            return Answer(503, shown, headers)
        case "empty":
            return Answer(204, b"", [("ETag", '"e"')])
        case "binary":
            return Answer(200, bytes(range(256)), [("Content-Type", "application/x-own")])
        case "big":
            return Answer(201, b"x" * 5000, [("Content-Type", "text/plain")])
        case "stream":
            return Answer(201, b"abc" * 100, [("Content-Type", "text/plain")], stream=True)
        case "flood":
            return Answer(201, b"abc" * 2000, [("Content-Type", "text/plain")], stream=True)
        case _:
            return Answer(201, shown, headers)


def rows(conn: Conn, table: str = "payment") -> int:
    found = conn.execute(f"select count(*) from public.{table}").fetchone()
    assert found is not None
    return int(found[0])


def operations(conn: Conn) -> list[tuple[Any, ...]]:
    """(status, attempts) of every operation."""
    return conn.execute(
        "select status, attempts from semel.operations order by created_at, request_id"
    ).fetchall()
