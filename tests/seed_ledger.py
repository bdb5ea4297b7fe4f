"""The `input_event` table of the second seed's system, with a row of every state it leaves."""

import json
from datetime import UTC, datetime
from typing import Any

from psycopg.types.json import Jsonb

from fix_world import Conn
from semel import input_digest
from semel.core.operations import Begun, Identity, base_id, operation_begin
from semel.db.execute import run

PROJECT = "shop"
PATH = "payment.create"
INPUT = b'{"amount": 5, "to": "bob"}'
OTHER = b'{"amount": 6, "to": "bob"}'
OLD = datetime(2025, 3, 1, 9, tzinfo=UTC)
TABLE = "seed.input_event"

SCHEMA = """
create schema seed;
create table seed.input_event (
    id bigint generated always as identity primary key, request_id text not null unique,
    target text not null, event_type text not null, payload jsonb not null default '{}',
    actor_user_id text, status text not null default 'PENDING', attempts int not null default 0,
    result jsonb, error text, locked_by text, lease_until timestamp,
    created_at timestamp not null default now(), processing_at timestamp, completed_at timestamp)
"""


def envelope(raw: bytes = INPUT) -> dict[str, Any]:
    """What the seed's system stores of an input."""
    return {"version": 1, "digest": input_digest(raw, version=1, decode="js")}


def request_id(key: str, actor: str | None = "alice", path: str = PATH) -> str:
    """The id that its requests have, and ours of tRPC."""
    return f"{base_id(PROJECT, actor, key)}:{path}"


def seed(conn: Conn) -> None:
    """Make the empty table."""
    conn.execute(SCHEMA)


def leave(conn: Conn, key: str, status: str, **more: Any) -> str:
    """One row as that system leaves it; answers its request id."""
    told: dict[str, Any] = {
        "request_id": request_id(key),
        "target": "API",
        "event_type": PATH,
        "payload": envelope(),
        "actor_user_id": "alice",
        "status": status,
        "attempts": 0 if status == "PENDING" else 1,
        "created_at": OLD.replace(tzinfo=None),
        **more,
    }
    told["payload"] = Jsonb(told["payload"])
    if told.get("result") is not None:
        told["result"] = Jsonb(told["result"])
    columns = ", ".join(told)
    places = ", ".join(["%s"] * len(told))
    conn.execute(
        f"insert into seed.input_event ({columns}) values ({places})".encode(),
        list(told.values()),
    )
    return str(told["request_id"])


def ask(
    conn: Conn,
    request: str,
    raw: bytes = INPUT,
    *,
    actor: str | None = "alice",
    path: str = PATH,
) -> Begun:
    """The request as it comes here now, and what it meets; a claim is rolled back."""
    identity = Identity(
        project=PROJECT,
        request_id=request,
        event_type=path,
        actor=actor,
        envelopes=[envelope(raw)],
    )
    with conn.transaction(force_rollback=True):
        return run(conn, operation_begin(identity, wait=None))


def rows(conn: Conn, table: str = "semel.operation") -> dict[str, Any]:
    """Every row of the table as JSON text, by request id: to see that nothing changed."""
    found = conn.execute(
        f"select t.request_id, to_jsonb(t) from {table} as t order by t.request_id".encode()
    )
    return {request: json.dumps(row, sort_keys=True) for request, row in found}
