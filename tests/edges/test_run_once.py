"""run_once: the whole transaction again where the database asks for it; pools that keep their breath."""

# ruff: noqa: ASYNC110, SIM117, TRY301 - blocks inside blocks, that raise

import asyncio
import threading
from collections.abc import Callable
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import semel
from fix_world import Conn, one
from semel.config import DigestKey
from semel.core.journals import ENTRIES_MAX
from semel.core.seals import Seal
from semel.errors import (
    BadKey,
    BadReply,
    BadRequest,
    DatabaseUnreachable,
    InFlight,
    KeyConflict,
    LegacyUnverifiable,
    LostRace,
    NeedsReconcile,
    ResultNotKept,
    TooLarge,
    Unauthenticated,
)
from ways import WAYS, Way, django_connection, forget_django, url

TOLD: dict[str, Any] = {"project": "p", "actor": "a", "key": "k", "operation": "pay"}
INSERT = "insert into public.paid values (1)"


@pytest.fixture(autouse=True)
def _paid(conn: Conn) -> None:
    conn.execute("create table public.paid (id int primary key)")


def state(conn: Conn) -> tuple[str, int] | None:
    found = conn.execute("select status, attempts from semel.operation").fetchall()
    return (found[0][0], found[0][1]) if found else None


def test_a_pool_of_psycopg(dsn: str, conn: Conn) -> None:
    from psycopg_pool import ConnectionPool

    def pay(mine: Conn, op: Any) -> Any:
        mine.execute(INSERT)
        return {"attempt": op.attempts}

    with ConnectionPool(dsn, min_size=1, open=True) as pool:
        answers = [semel.run_once(pool, pay, **TOLD).body for _ in range(2)]
    assert [b'{"attempt":1}'] * 2 == answers


def test_pools_that_are_awaited(dsn: str, conn: Conn) -> None:
    import asyncpg
    from psycopg_pool import AsyncConnectionPool
    from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

    told = conninfo_to_dict(dsn)

    async def pay(mine: Any, op: Any) -> Any:
        op.reply({"attempt": op.attempts}, status=201)

    async def go() -> list[Any]:
        engine = create_async_engine(url(dsn, "asyncpg"))
        async with (
            AsyncConnectionPool(dsn, min_size=1, open=False) as first,
            asyncpg.create_pool(
                host=told["host"], user=told["user"], database=told["dbname"], min_size=1
            ) as second,
        ):
            answers = [
                await semel.run_once(pool, pay, **TOLD)
                for pool in (first, second, engine, async_sessionmaker(engine))
            ]
        await engine.dispose()
        return answers

    answers = asyncio.run(go())
    assert {(201, b'{"attempt":1}')} == {(each.status, each.body) for each in answers}


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_a_connection_that_died_in_its_pool_is_replaced(
    dsn: str, conn: Conn, driver: str
) -> None:
    from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

    async def pay(_mine: Any, op: Any) -> Any:
        return op.attempts

    async def go() -> list[Any]:
        engine = create_async_engine(url(dsn, driver), pool_size=1, max_overflow=0)
        answers = []
        for n, pool in enumerate((engine, async_sessionmaker(engine))):
            await semel.run_once(pool, pay, **{**TOLD, "key": f"{n}"})
            conn.execute(
                "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()"
            )
            for _ in range(
                20
            ):  # its end has come to the socket; these turns of the loop see it
                await asyncio.sleep(0)
            answers.append(await semel.run_once(pool, pay, **TOLD))
        await engine.dispose()
        return answers

    assert [b"1"] * 2 == [each.body for each in asyncio.run(go())]


def test_a_pool_that_has_no_connection_in_time_is_the_database_out_of_reach(dsn: str) -> None:
    from psycopg_pool import ConnectionPool

    with (
        ConnectionPool(dsn, min_size=1, max_size=1, timeout=0.05) as pool,
        pool.connection(),
        pytest.raises(DatabaseUnreachable) as raised,
    ):
        semel.run_once(pool, lambda _mine, op: op.attempts, **TOLD)
    assert type(raised.value.__cause__).__name__ == "PoolTimeout"


@pytest.mark.parametrize("kind", ["psycopg", "asyncpg"])
def test_a_server_that_nobody_answers_at_is_the_database_out_of_reach(kind: str) -> None:
    import asyncpg

    async def lend() -> Any:
        if kind == "asyncpg":
            return await asyncpg.connect("postgresql://127.0.0.1:1/none")
        return await psycopg.AsyncConnection.connect("host=127.0.0.1 port=1")

    @asynccontextmanager
    async def mine() -> Any:
        yield await lend()

    async def go() -> None:
        await semel.run_once(mine, lambda _mine, op: op.attempts, attempts=2, **TOLD)

    with pytest.raises(DatabaseUnreachable):
        asyncio.run(go())


def test_engines_sessions_django_and_functions(dsn: str, conn: Conn) -> None:
    from sqlalchemy import create_engine
    from sqlalchemy.orm import sessionmaker

    engine = create_engine(url(dsn, "psycopg"))
    django = django_connection(dsn)

    @contextmanager
    def mine() -> Any:
        with psycopg.connect(dsn) as own:
            yield own

    for pool in (engine, sessionmaker(engine), django, mine):
        assert b"1" == semel.run_once(pool, lambda _mine, op: op.attempts, **TOLD).body
    with pytest.raises(TypeError, match="no pool Semel knows"):
        semel.run_once(object(), lambda _mine, _op: None, **TOLD)
    forget_django()
    engine.dispose()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
@pytest.mark.parametrize("sqlstate", ["40001", "40P01"])
def test_a_lost_race_leaves_nothing_and_may_be_sent_again(
    way: Way, sqlstate: str, dsn: str, conn: Conn
) -> None:
    lose = f"do $$ begin raise exception 'lost' using errcode = '{sqlstate}'; end $$"

    async def act(mine: Any) -> None:
        with pytest.raises(LostRace) as raised:
            async with way.once(mine):
                await way.execute(mine, INSERT)
                await way.execute(mine, lose)
        assert raised.value.retryable
        assert state(conn) is None
        async with way.once(mine) as op:
            await way.execute(mine, INSERT)
        assert 1 == op.attempts

    way.play(dsn, act)
    assert ("SUCCEEDED", 1) == state(conn)


def test_a_lost_race_is_run_again_a_few_times(dsn: str, conn: Conn) -> None:
    tries: list[int] = []

    @contextmanager
    def pool() -> Any:
        with psycopg.connect(dsn) as own:
            yield own

    def racing(times: int) -> Callable[..., Any]:
        def work(mine: Conn, _op: Any) -> None:
            tries.append(1)
            mine.execute(INSERT)
            if len(tries) <= times:
                mine.execute("do $$ begin raise exception 'x' using errcode = '40P01'; end $$")

        return work

    with pytest.raises(LostRace):
        semel.run_once(pool, racing(9), attempts=3, **TOLD)
    assert (3, None) == (len(tries), state(conn))
    tries.clear()
    semel.run_once(pool, racing(2), attempts=3, **TOLD)
    assert (3, ("SUCCEEDED", 1)) == (len(tries), state(conn))


def test_two_that_deadlock_both_succeed(dsn: str, conn: Conn) -> None:
    conn.execute(
        "create table public.account as select n as id, 0 as sum from generate_series(1, 2) n"
    )
    both = threading.Barrier(2)
    first = [True, True]

    @contextmanager
    def pool() -> Any:
        with psycopg.connect(dsn) as own:
            own.execute("set deadlock_timeout = '20ms'")
            own.commit()
            yield own

    def transfer(mine: Conn, a: int, b: int) -> None:
        mine.execute("update public.account set sum = sum + 1 where id = %s", (a,))
        if first[a - 1]:
            first[a - 1] = False
            both.wait(20)
        mine.execute("update public.account set sum = sum + 1 where id = %s", (b,))

    def go(a: int, b: int) -> None:
        semel.run_once(pool, lambda mine, _op: transfer(mine, a, b), **{**TOLD, "key": str(a)})

    threads = [threading.Thread(target=go, args=pair) for pair in ((1, 2), (2, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(2,), (2,)] == conn.execute("select sum from public.account").fetchall()
    assert [("SUCCEEDED", 1)] * 2 == conn.execute(
        "select status, attempts from semel.operation"
    ).fetchall()


def test_a_stampede_executes_once_and_half_of_the_pool_waits(dsn: str, conn: Conn) -> None:
    """The first one waits for us; of four other connections two wait with it."""
    from psycopg_pool import AsyncConnectionPool

    async def go() -> list[Any]:
        inside, on = asyncio.Event(), asyncio.Event()

        async def pay(mine: Any, op: Any) -> Any:
            inside.set()
            await on.wait()
            await mine.execute(INSERT)
            return {"id": 1}

        async with AsyncConnectionPool(dsn, min_size=5, max_size=5, open=False) as pool:
            first = asyncio.create_task(semel.run_once(pool, pay, **TOLD))
            await inside.wait()
            rest = [asyncio.create_task(semel.run_once(pool, pay, **TOLD)) for _ in range(20)]
            while sum(task.done() for task in rest) < 18:
                await asyncio.sleep(0.01)
            assert all(isinstance(task.exception(), InFlight) for task in rest if task.done())
            on.set()
            return await asyncio.gather(first, *rest, return_exceptions=True)

    answers = asyncio.run(go())
    assert 3 == sum(getattr(each, "body", None) == b'{"id":1}' for each in answers)
    assert (1, ("SUCCEEDED", 1)) == (one(conn, "select count(*) from public.paid"), state(conn))


# -- bad input ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "error"),
    [
        ({"key": ""}, BadKey),
        ({"key": "  "}, BadKey),
        ({"key": "é"}, BadKey),
        ({"key": "a\nb"}, BadKey),
        ({"key": "x" * 256}, BadKey),
        ({"key": None, "required": True}, BadKey),
        ({"actor": None}, Unauthenticated),
        ({"actor": ""}, BadRequest),
        ({"project": "NO"}, BadRequest),
        ({"operation": ""}, BadRequest),
        ({"operation": "x" * 513}, BadRequest),
        ({"input": b"{"}, BadRequest),
        ({"input": b'{"a":NaN}'}, BadRequest),
        ({"input": {"a": object()}}, BadRequest),
        ({"input": 1, "digest": "sha256:" + "0" * 64}, BadRequest),
        ({"digest": "md5:0"}, BadRequest),
        ({"digest": "sha256:no"}, BadRequest),
        ({"key": 7}, BadKey),
        ({"project": None}, BadRequest),
        ({"operation": 7}, BadRequest),
        ({"version": 3}, BadRequest),
        ({"decode": "lax"}, BadRequest),
        ({"anonymous": "yes"}, BadRequest),
        ({"store": "nowhere"}, BadRequest),
        ({"store": "omit", "seal": Seal(bytes, bytes)}, BadRequest),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(
    dsn: str, conn: Conn, told: dict[str, Any], error: type[Exception]
) -> None:
    with psycopg.connect(dsn) as mine, pytest.raises(error):
        with semel.once(mine, **{**TOLD, **told}):
            raise AssertionError
    assert state(conn) is None


def test_nobody_shares_a_key_where_it_is_said(dsn: str, conn: Conn) -> None:
    with psycopg.connect(dsn) as mine:
        for n in range(2):
            with semel.once(mine, **{**TOLD, "actor": None}, anonymous="shared") as op:
                assert (n == 1) == (op.replay is not None)


@pytest.mark.parametrize(
    "told",
    [
        {"status": 100},
        {"status": 600},
        {"status": "200"},
        {"status": True},
        {"status": 200.5},
        {"headers": [("X", "a\0")]},
        {"headers": [("X", "a\r\nSet-Cookie: b=1")]},
        {"headers": [("X", "\N{SNOWMAN}")]},
        {"headers": [("X Y", "1")]},
        {"headers": [("X", "1", "2")]},
    ],
)
def test_what_no_server_could_send_is_no_reply(
    dsn: str, conn: Conn, told: dict[str, Any]
) -> None:
    with psycopg.connect(dsn) as mine:
        with pytest.raises(BadReply), semel.once(mine, **TOLD) as op:
            op.reply({}, **told)
        assert ("FAILED", 1) == state(conn)


class _Mute(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


def test_a_failure_is_recorded_whatever_it_says(dsn: str, conn: Conn) -> None:
    with psycopg.connect(dsn) as mine:
        with pytest.raises(_Mute), semel.once(mine, **TOLD):
            raise _Mute
        assert ("FAILED", 1) == state(conn)
        for told in ({"message": None}, {"message": "\0\ud800", "code": "\0"}):
            with semel.once(mine, **TOLD) as op:
                op.fail(**told)
        assert ("FAILED", 3) == state(conn)


# -- what is committed with it --------------------------------------------------------------


def test_an_entry_says_what_was_so_when_it_was_said(dsn: str, conn: Conn) -> None:
    with psycopg.connect(dsn) as mine, semel.once(mine, **TOLD) as op:
        place: dict[str, Any] = {}
        for number in (1, 2):
            place["number"] = number
            op.journal("places", place)
        place["late"] = object()
    said = conn.execute("select payload from semel.journal order by payload").fetchall()
    assert said == [({"number": 1},), ({"number": 2},)]


def test_too_many_entries_are_refused_one_by_one(dsn: str, conn: Conn) -> None:
    with psycopg.connect(dsn) as mine:
        with pytest.raises(TooLarge), semel.once(mine, **TOLD) as op:
            for _ in range(ENTRIES_MAX + 1):
                op.journal("places")
    assert ("FAILED", 1) == state(conn)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_runs_and_entries_come_with_success_alone(way: Way, dsn: str, conn: Conn) -> None:
    async def act(mine: Any) -> None:
        for fails in (True, False, False):
            try:
                async with way.once(mine) as op:
                    if op.replay is None:
                        await way.execute(mine, INSERT)
                        op.journal("payments", {"id": 1})
                        op.start("receipt", {"id": 1})
                        op.start("mail", {"id": 1}, key="m", priority=9)
                        op.start("mail", {"id": 1}, key="m")
                        if fails:
                            raise ZeroDivisionError
            except ZeroDivisionError:
                assert 0 == one(conn, "select count(*) from semel.run")
        async with way.once(mine, key=None) as op:
            op.journal("payments", {"id": 2})
            op.start("receipt", {"id": 2})

    way.play(dsn, act)
    seen = conn.execute("select agent, input from semel.runs order by agent, input").fetchall()
    assert [("mail", {"id": 1}), ("receipt", {"id": 1}), ("receipt", {"id": 2})] == seen
    entries = "select topic, payload, request_id is null from semel.journal_pending order by finished_at"
    assert [("payments", {"id": 1}, False), ("payments", {"id": 2}, True)] == conn.execute(
        entries
    ).fetchall()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_the_same_child_with_another_input_is_a_conflict(
    way: Way, dsn: str, conn: Conn
) -> None:
    async def act(mine: Any) -> None:
        with pytest.raises(semel.SemelError, match="another agent or input"):
            async with way.once(mine) as op:
                op.start("mail", 1, key="m")
                op.start("mail", 2, key="m")

    way.play(dsn, act)
    assert ("FAILED", 1) == state(conn)
    assert 0 == one(conn, "select count(*) from semel.run")


# -- rows of another time -------------------------------------------------------------------


def left(
    conn: Conn, status: str, payload: str, *, target: str = "API", attempts: int = 1
) -> None:
    """A row as another system left it, under the id r."""
    conn.execute(
        "insert into semel.operation (project_id, request_id, target, event_type, actor_user_id, payload, status,"
        " attempts, created_at, updated_at) values"
        " ('p', 'r', %s, 'pay', 'a', %s, %s, %s, now() - interval '10 days', now() - interval '10 days')",
        (target, payload, status, attempts),
    )


def test_a_failure_without_a_digest_is_adopted_once(dsn: str, conn: Conn) -> None:
    left(conn, "FAILED", "{}", attempts=3)
    with psycopg.connect(dsn) as mine:
        with (
            pytest.raises(ZeroDivisionError),
            semel.once(mine, **TOLD, request_id="r", input=1),
        ):
            raise ZeroDivisionError
        assert ("FAILED", 4) == state(conn)
        with pytest.raises(KeyConflict), semel.once(mine, **TOLD, request_id="r", input=2):
            raise AssertionError
        with semel.once(mine, **TOLD, request_id="r", input=1) as op:
            assert 5 == op.attempts


@pytest.mark.parametrize(
    ("status", "target", "error"),
    [
        ("PROCESSING", "API", NeedsReconcile),
        ("SUCCEEDED", "API", LegacyUnverifiable),
        ("PENDING", "API", LegacyUnverifiable),
        ("FAILED", "ENGINE", KeyConflict),
    ],
)
def test_what_cannot_be_compared_is_never_executed(
    dsn: str, conn: Conn, status: str, target: str, error: type[Exception]
) -> None:
    left(conn, status, "{}", target=target)
    before = conn.execute("select * from semel.operation").fetchall()
    with psycopg.connect(dsn) as mine, pytest.raises(error):
        with semel.once(mine, **TOLD, request_id="r"):
            raise AssertionError
    assert before == conn.execute("select * from semel.operation").fetchall()


def test_a_key_of_digests_is_rotated(dsn: str, conn: Conn) -> None:
    old, new = DigestKey("old", b"1" * 32), DigestKey("new", b"2" * 32)
    with psycopg.connect(dsn) as mine:
        with semel.once(mine, **TOLD, input={"pin": 1}, keys=[old]):
            pass
        with semel.once(mine, **TOLD, input={"pin": 1}, keys=[new, old]) as op:
            assert op.replay is not None
        with pytest.raises(KeyConflict):
            with semel.once(mine, **TOLD, input={"pin": 2}, keys=[new, old]):
                raise AssertionError
        with pytest.raises(LegacyUnverifiable):
            with semel.once(mine, **TOLD, input={"pin": 1}, keys=[new]):
                raise AssertionError


def test_a_ready_digest_is_as_good_as_its_input(dsn: str, conn: Conn) -> None:
    with psycopg.connect(dsn) as mine:
        with semel.once(mine, **TOLD, input={"b": 1, "a": 2}):
            pass
        digest = semel.input_digest(b'{"a":2,"b":1}')
        with semel.once(mine, **TOLD, digest=digest) as op:
            assert op.replay is not None


def test_workers_and_consumers_are_told_after_the_commit(dsn: str, conn: Conn) -> None:
    with psycopg.connect(dsn, autocommit=True) as ear, psycopg.connect(dsn) as mine:
        ear.execute("listen semel; listen semel_journal")
        with pytest.raises(ZeroDivisionError), semel.once(mine, **TOLD) as op:
            op.start("told-once", 1)
            raise ZeroDivisionError
        with semel.once(mine, **TOLD) as op:
            op.start("told-once", 1)
            op.journal("t")
        heard = {
            (each.channel, each.payload) for each in ear.notifies(timeout=10, stop_after=2)
        }
    assert {("semel", "told-once"), ("semel_journal", "p")} == heard


def test_a_block_is_entered_once(dsn: str, conn: Conn) -> None:
    with psycopg.connect(dsn) as mine:
        block = semel.once(mine, **TOLD)
        with block:
            pass
        with pytest.raises(BadRequest, match="entered before"), block:
            raise AssertionError


def test_a_sealed_reply_is_replayed_and_an_omitted_one_is_not(dsn: str, conn: Conn) -> None:
    seal = Seal(close=lambda text: text[::-1], open=lambda text: text[::-1])
    with psycopg.connect(dsn) as mine:
        for _ in range(2):
            with semel.once(mine, **TOLD, seal=seal) as op:
                if op.replay is None:
                    op.reply({"secret": 1})
            assert b'{"secret":1}' == op.response().body
        assert b"secret" not in one(conn, "select reply_body from semel.operation")
        with pytest.raises(ResultNotKept), semel.once(mine, **TOLD):
            raise AssertionError
        with semel.once(mine, **{**TOLD, "key": "2"}, store="omit") as op:
            op.reply(1)
        assert b"1" == op.response().body
        with pytest.raises(ResultNotKept), semel.once(mine, **{**TOLD, "key": "2"}):
            raise AssertionError
