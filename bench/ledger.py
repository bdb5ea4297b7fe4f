"""
Ledger: a small mutation at eight callers, plain and under four ledgers, and the replay.

plain is BEGIN, UPDATE, INSERT, COMMIT. naive is the ledger that one writes first: seven statements
more, each its own round trip. two functions is what a hand-written ledger comes to when it is
pipelined; it compares nothing, bounds no wait and keeps no header. Ours is begin and close in the
same four round trips, then the same with the savepoint that a failing mutation needs. A replay is
one statement. Last, both through `semel.once`, as a program has them.
"""

import asyncio
import itertools
import json
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
from psycopg.types.json import Jsonb
from server import Server

import semel
from semel.core.digest import value_digest
from semel.core.operations import base_id
from semel.db import migrate
from semel.db.pool import connect

CALLERS = 8
MUTATION = "a mutation under a key"
MAY_FAIL = "a mutation that may fail"
REPLAY_OF = "a replay"
ONCE = "a mutation through once"
REPLAY_ONCE = "a replay through once"
TEMPLATE = "bench_ledger"
ACCOUNTS = 100_000
REPLAYS = 1_000
REPLAYED = {"of": "r"}

HAND_WRITTEN = """
create table account (id int primary key, balance bigint not null default 0);
insert into account (id) select generate_series(1, 100000);
create table transfer (
    id bigint generated always as identity primary key, account_id int not null,
    amount int not null, created_at timestamptz not null default now());
create table ledger (
    project_id int not null, op text not null, key text not null, request_hash bytea not null,
    state text not null, result jsonb, attempt int not null default 0,
    created_at timestamptz not null default now(), updated_at timestamptz not null default now(),
    primary key (project_id, op, key));
create function ledger_begin(p int, o text, k text, h bytea, out st text, out res jsonb)
language plpgsql as $$
begin
    insert into ledger (project_id, op, key, request_hash, state, attempt)
    values (p, o, k, h, 'PROCESSING', 1) on conflict do nothing;
    if found then st := 'NEW'; return; end if;
    select l.state, l.result into st, res from ledger as l
    where project_id = p and op = o and key = k for update;
    if st = 'SUCCEEDED' then return; end if;
    update ledger set state = 'PROCESSING', attempt = attempt + 1, updated_at = now()
    where project_id = p and op = o and key = k;
    st := 'NEW';
end $$;
create function ledger_finish(p int, o text, k text, r jsonb) returns void language sql as $$
    update ledger set state = 'SUCCEEDED', result = r, updated_at = now()
    where project_id = p and op = o and key = k $$;
"""
HASH = b"0123456789abcdef0123456789abcdef"
#: As an array of jsonb is written.
ENVELOPES = '{"{\\"version\\":2,\\"digest\\":\\"sha256:' + "0123456789abcdef" * 4 + '\\"}"}'
BEGIN = "select outcome, attempts, xid from semel.operation_begin(%s, %s, %s, %s, %s::jsonb[])"
REPLAY = "select * from semel.operation_begin(%s, %s, %s, %s, %s::jsonb[])"
CLOSE = "select semel.operation_close(%s, %s, %s, %s, %s, %s, %s)"
UPDATE = "update account set balance = balance + 1 where id = %s returning balance"
INSERT = "insert into transfer (account_id, amount) values (%s, 1)"

Conn = psycopg.AsyncConnection[Any]
Mutation = Callable[[Conn, str, int], Awaitable[None]]


async def plain(conn: Conn, _key: str, account: int) -> None:
    async with conn.transaction():
        await (await conn.execute(UPDATE, (account,))).fetchone()
        await conn.execute(INSERT, (account,))


async def naive(conn: Conn, key: str, account: int) -> None:
    named = "where project_id = %s and op = %s and key = %s"
    await conn.execute("begin")
    await conn.execute(
        "insert into ledger (project_id, op, key, request_hash, state)"
        " values (%s, %s, %s, %s, 'PENDING') on conflict do nothing",
        (1, "op", key, HASH),
    )
    found = await conn.execute(
        f"select state, result, request_hash from ledger {named} for update", (1, "op", key)
    )
    await found.fetchone()
    await conn.execute(
        "update ledger set state = 'PROCESSING', attempt = attempt + 1, updated_at = now() "
        + named,
        (1, "op", key),
    )
    await conn.execute("savepoint s")
    answer = await result(await conn.execute(UPDATE, (account,)))
    await conn.execute(INSERT, (account,))
    await conn.execute("release savepoint s")
    await conn.execute(
        f"update ledger set state = 'SUCCEEDED', result = %s, updated_at = now() {named}",
        (Jsonb(answer), 1, "op", key),
    )
    await conn.execute("commit")


async def two_functions(conn: Conn, key: str, account: int) -> None:
    async with conn.pipeline() as pipe:
        await conn.execute("begin")
        begun = await conn.execute(
            "select * from ledger_begin(%s, %s, %s, %s)", (1, "op", key, HASH)
        )
        await begun.fetchone()
        answer = await result(await conn.execute(UPDATE, (account,)))
        await conn.execute(INSERT, (account,))
        await pipe.sync()
        await conn.execute(
            "select ledger_finish(%s, %s, %s, %s)", (1, "op", key, Jsonb(answer))
        )
        await conn.execute("commit")


async def ours(conn: Conn, key: str, account: int, *, savepoint: bool = False) -> None:
    async with conn.pipeline() as pipe:
        await conn.execute("begin")
        begun = await conn.execute(BEGIN, ("p", key, "op", "ann", ENVELOPES))
        if savepoint:
            await conn.execute("savepoint semel")
        outcome, attempts, xid = await begun.fetchone() or ("",) * 3
        if outcome != "claimed":
            raise AssertionError(outcome)
        answer = await result(await conn.execute(UPDATE, (account,)))
        await conn.execute(INSERT, (account,))
        await pipe.sync()
        body = json.dumps(answer).encode()
        await conn.execute(CLOSE, ("p", key, attempts, xid, 201, "[]", body))
        await conn.execute("commit")


async def ours_with_savepoint(conn: Conn, key: str, account: int) -> None:
    await ours(conn, key, account, savepoint=True)


async def through_once(conn: Conn, key: str, account: int) -> None:
    told = {"project": "p", "actor": "ann", "key": key, "operation": "op"}
    async with semel.once(conn, **told, input={"account": account}) as op:
        if op.replay is not None:
            raise AssertionError(key)
        answer = await result(await conn.execute(UPDATE, (account,)))
        await conn.execute(INSERT, (account,))
        op.reply(answer, status=201)
    op.response()


async def replay_through_once(conn: Conn, _key: str, account: int) -> None:
    told = {"project": "p", "actor": "ann", "operation": "op"}
    key = f"r{account % REPLAYS}"
    async with semel.once(conn, **told, key=key, input=REPLAYED) as op:
        if op.replay is None:
            raise AssertionError(key)
    op.response()


async def replay(conn: Conn, _key: str, account: int) -> None:
    key = f"r{account % REPLAYS}"
    begun = await conn.execute(REPLAY, ("p", key, "op", "ann", ENVELOPES))
    outcome, *_ = await begun.fetchone() or ("",)
    if outcome != "replay":
        raise AssertionError(outcome)


#: What each is, and in which comparisons its figure stands.
VARIANTS: dict[str, tuple[Mutation, tuple[tuple[str, str], ...]]] = {
    "plain": (
        plain,
        tuple((what, "plain") for what in (MUTATION, MAY_FAIL, REPLAY_OF, ONCE, REPLAY_ONCE)),
    ),
    "naive": (naive, ((MAY_FAIL, "naive"), (ONCE, "naive"))),
    "two functions": (two_functions, ((MUTATION, "two functions"),)),
    "ours": (ours, ((MUTATION, "semel"),)),
    "ours, savepoint": (ours_with_savepoint, ((MAY_FAIL, "semel"),)),
    "ours, replay": (replay, ((REPLAY_OF, "semel"),)),
    "once": (through_once, ((ONCE, "semel"),)),
    "once, replay": (replay_through_once, ((REPLAY_ONCE, "semel"),)),
}


async def result(updated: psycopg.AsyncCursor[Any]) -> dict[str, Any]:
    [balance] = await updated.fetchone() or [0]
    return {"balance": balance, "ok": True}


def prepare(server: Server) -> None:
    """The template that each measurement is a copy of: accounts, both ledgers, and replays."""
    server.make(TEMPLATE)
    with connect(server.url(TEMPLATE)) as conn:
        migrate.migrate(conn)
        conn.execute(HAND_WRITTEN)
        with conn.transaction():
            digest = value_digest(REPLAYED)
            of_once = [Jsonb({"version": 2, "digest": digest})]
            for n in range(REPLAYS):
                for who in (
                    ("p", f"r{n}", "op", "ann", ENVELOPES),
                    ("p", base_id("p", "ann", f"r{n}"), "op", "ann", of_once),
                ):
                    conn.execute(
                        "select from semel.operation_begin"
                        "(%s, %s, %s, %s, %s::jsonb[], p_join => true)",
                        who,
                    )
        conn.execute(
            "update semel.operation set status = 'SUCCEEDED', reply_status = 201,"
            " reply_headers = '[]', reply_body = %s, completed_at = created_at",
            (b'{"ok":true,"balance":1}',),
        )
        conn.execute("vacuum analyze")


def ledger(server: Server, variant: str, *, seconds: float) -> dict[str, float]:
    """How many mutations CALLERS callers get done in a second: rate, and WAL for each."""
    if not server.exists(TEMPLATE):
        prepare(server)
    name = "bench_ledger_run"
    server.make(name, of=TEMPLATE)
    server.settle()
    before = server.counters(name)
    done, took = asyncio.run(_measure(server.url(name), VARIANTS[variant][0], seconds))
    after = server.counters(name)
    server.drop(name)
    return {"rate": done / took, "wal_bytes": (after["wal_bytes"] - before["wal_bytes"]) / done}


async def _measure(dsn: str, mutation: Mutation, seconds: float) -> tuple[int, float]:
    conns = [
        await psycopg.AsyncConnection.connect(dsn, autocommit=True) for _ in range(CALLERS)
    ]
    run = uuid.uuid4().hex[:12]
    count = itertools.count()
    done = 0
    for n, conn in enumerate(conns):
        await mutation(conn, f"{run}w{n}", 5)  # what is prepared and cached once
    started = time.perf_counter()

    async def caller(conn: Conn) -> None:
        nonlocal done
        while time.perf_counter() < started + seconds:
            n = next(count)
            await mutation(conn, f"{run}{n}", 1 + n * 7919 % ACCOUNTS)
            done += 1

    await asyncio.gather(*map(caller, conns))
    took = time.perf_counter() - started
    for conn in conns:
        await conn.close()
    return done, took
