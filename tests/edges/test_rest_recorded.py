"""The recorder of operations whose work has transactions of its own, and a database that comes and goes."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import psycopg
import pytest

from fix_world import Conn
from rest_shop import operations
from semel.core.call import Call
from semel.core.digest import input_digest
from semel.core.operations import base_id
from semel.core.seals import Seal
from semel.db.execute import arun
from semel.edges.rest.asked import Asked
from semel.edges.rest.recorded import Claimed, Recorder, Replayed
from semel.edges.rest.rules import Rules
from semel.errors import DatabaseUnreachable, KeyConflict, NeedsReconcile, ResultNotKept

T = TypeVar("T")
ASKED = Asked(
    method="POST", path="/p", headers=(("content-type", "application/json"),), body=b"[1]"
)
LINES = [("Content-Type", "text/plain")]


async def at_once(_: float) -> None:
    """A pause."""


def with_recorder(
    dsn: str,
    story: Callable[[Recorder, Rules, list[Exception]], Awaitable[None]],
    **rules: Any,
) -> None:
    """Run *story* with a recorder whose calls raise what the list holds, one after the other."""

    async def go() -> None:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
            faults: list[Exception] = []

            async def run(call: Call[T]) -> T:
                if faults:
                    raise faults.pop(0)
                return await arun(conn, call)

            told = Rules(project="shop", **rules)
            await story(Recorder(told, run, at_once), told, faults)

    asyncio.run(go())


async def claim(recorder: Recorder, rules: Rules) -> Claimed:
    begun = await recorder.begin(rules.who(ASKED, "alice", "k"))
    assert isinstance(begun, Claimed)
    return begun


def test_an_outcome_is_written_once_the_database_is_back(dsn: str, conn: Conn) -> None:
    async def story(recorder: Recorder, rules: Rules, faults: list[Exception]) -> None:
        claimed = await claim(recorder, rules)
        faults += [DatabaseUnreachable("away"), psycopg.OperationalError("away")]
        await recorder.finish(claimed, 201, LINES, b"x")
        replay = await recorder.begin(rules.who(ASKED, "alice", "k"))
        assert isinstance(replay, Replayed)
        assert (replay.reply.status, replay.reply.body, replay.attempts) == (201, b"x", 1)

    with_recorder(dsn, story)
    assert operations(conn) == [("SUCCEEDED", 1)]


def test_an_outcome_that_cannot_be_written_is_logged_and_stays_for_a_person(
    dsn: str, conn: Conn, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(recorder: Recorder, rules: Rules, faults: list[Exception]) -> None:
        claimed = await claim(recorder, rules)
        faults += [DatabaseUnreachable("away")] * 99
        with caplog.at_level(logging.ERROR, "semel"):
            await recorder.finish(claimed, 201, LINES, b"x")  # the answer is true all the same
        faults.clear()
        assert await recorder.release(claimed, untouched=False)
        with pytest.raises(NeedsReconcile):
            await recorder.begin(rules.who(ASKED, "alice", "k"))

    with_recorder(dsn, story)
    assert "operation.unwritten" in [record.message for record in caplog.records]
    assert operations(conn) == [("PROCESSING", 1)]


def test_a_row_is_compared_under_its_own_version(dsn: str, conn: Conn) -> None:
    async def story(recorder: Recorder, rules: Rules, _: list[Exception]) -> None:
        await recorder.finish(await claim(recorder, rules), 200, LINES, b"x")
        conn.execute(
            "update semel.operation set payload = jsonb_build_object('version', 1, 'digest', %s::text)",
            (input_digest(b"[1]", version=1),),
        )
        assert isinstance(await recorder.begin(rules.who(ASKED, "alice", "k")), Replayed)
        with pytest.raises(KeyConflict):
            other = Asked(method="POST", path="/p", headers=ASKED.headers, body=b"[2]")
            await recorder.begin(rules.who(other, "alice", "k"))

    with_recorder(dsn, story)


def test_an_answer_is_kept_sealed_or_not_at_all_where_the_rules_say_so(
    dsn: str, conn: Conn
) -> None:
    seal = Seal(close=lambda raw: raw[::-1], open=lambda raw: raw[::-1])

    async def sealed(recorder: Recorder, rules: Rules, _: list[Exception]) -> None:
        await recorder.finish(await claim(recorder, rules), 200, LINES, b"secret")
        replay = await recorder.begin(rules.who(ASKED, "alice", "k"))
        assert isinstance(replay, Replayed)
        assert (replay.reply.headers, replay.reply.body) == (LINES, b"secret")

    async def shut(recorder: Recorder, rules: Rules, _: list[Exception]) -> None:
        with pytest.raises(ResultNotKept):
            await recorder.begin(rules.who(ASKED, "alice", "k"))

    with_recorder(dsn, sealed, seal=seal)
    [(kept,)] = conn.execute("select reply_body from semel.operation").fetchall()
    assert b"secret" not in bytes(kept)
    with_recorder(dsn, shut)
    conn.execute("delete from semel.operation")

    async def omitted(recorder: Recorder, rules: Rules, _: list[Exception]) -> None:
        await recorder.finish(await claim(recorder, rules), 200, LINES, b"secret")
        with pytest.raises(ResultNotKept):
            await recorder.begin(rules.who(ASKED, "alice", "k"))

    with_recorder(dsn, omitted, store="omit")


def test_its_request_id_is_that_of_once(dsn: str, conn: Conn) -> None:
    async def story(recorder: Recorder, rules: Rules, _: list[Exception]) -> None:
        claimed = await claim(recorder, rules)
        assert claimed.identity.request_id == base_id("shop", "alice", "k")

    with_recorder(dsn, story)
