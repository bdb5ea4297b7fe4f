"""semel.start_many starts all or none, in the caller's transaction, whatever driver it is on."""

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import semel
from fix_world import Conn, one, row
from semel.errors import BadKey, BadRequest, KeyConflict

WANTED: dict[str, Any] = {"project": "p", "agent": "a", "batch": "b"}


def inputs(conn: Conn) -> list[Any]:
    """Of all runs there are, in the order in which they are claimed."""
    return [
        value
        for [value] in conn.execute(
            "select input from semel.runs order by ready_at, run_id"
        ).fetchall()
    ]


def url(dsn: str, driver: str) -> str:
    parts = conninfo_to_dict(dsn)
    return f"postgresql+{driver}://{parts['user']}@/{parts['dbname']}?host={parts['host']}"


class Boom(Exception):
    """Rolls a transaction back."""


def test_runs_of_a_batch_are_ready_in_the_order_of_their_inputs(conn: Conn) -> None:
    many = [{"n": n} for n in range(2500)]
    began = semel.start_many(conn, **WANTED, inputs=many, priority=7)

    assert ("b", "new", 2500, 0) == (
        began.name,
        began.outcome,
        began.total,
        began.duplicates,
    )
    assert many == inputs(conn)
    assert 2500 == one(conn, "select pending from semel.batches where batch = 'b'")
    assert {("PENDING", 7, "b")} == set(
        conn.execute("select status, priority, batch from semel.runs").fetchall()
    )


def test_large_inputs_and_a_generator_are_taken_as_they_come(conn: Conn) -> None:
    large = ["x" * 5000, {"s": "é" * 700_000}, 3]

    began = semel.start_many(conn, **{**WANTED, "batch": None}, inputs=(v for v in large))

    assert 3 == began.total
    assert large == inputs(conn)
    assert began.name == row(conn, one(conn, "select run_id from semel.runs limit 1"))["batch"]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (object(), "input 1700 is no JSON"),
        (float("nan"), "input 1700 is no JSON"),
        ("a\0b", "input 1700 cannot be stored"),
        ("\ud800", "input 1700 cannot be stored"),
    ],
)
def test_one_bad_input_refuses_all_and_is_named(conn: Conn, bad: Any, said: str) -> None:
    many: list[Any] = [{"n": n} for n in range(2000)]
    many[1700] = bad

    with conn.transaction():
        semel.start(conn, project="p", agent="other")
        with pytest.raises(BadRequest, match=said):
            semel.start_many(conn, **WANTED, inputs=many)

    assert 1 == one(conn, "select count(*) from semel.runs")
    assert 0 == one(conn, "select count(*) from semel.batches")


def test_an_input_that_nests_too_deep_is_named(conn: Conn) -> None:
    deep: Any = []
    for _ in range(300):
        deep = [deep]
    with pytest.raises(BadRequest, match="input 1: the JSON is nested deeper"):
        semel.start_many(conn, **WANTED, inputs=[1, deep])
    with pytest.raises(BadRequest, match="inputs is a list"):
        semel.start_many(conn, **WANTED, inputs="abc")
    with pytest.raises(BadRequest, match="batch's name"):
        semel.start_many(conn, **{**WANTED, "batch": "a\nb"}, inputs=[])


def test_the_same_batch_again_starts_nothing_and_other_inputs_conflict(conn: Conn) -> None:
    def begin(*values: Any, **more: Any) -> Any:
        return semel.start_many(conn, **{**WANTED, **more}, inputs=values)

    begin(1, 2)

    assert ("duplicate", 2) == (begin(1, 2).outcome, begin(1, 2).total)
    for other in ({"agent": "c"}, {"on_complete": "c"}):
        with pytest.raises(KeyConflict, match="batch 'b' is there"):
            begin(1, 2, **other)
    with pytest.raises(KeyConflict):
        begin(2, 1)
    assert [1, 2] == inputs(conn)


def test_keys_are_those_of_start_and_a_conflict_names_its_input(conn: Conn) -> None:
    old = semel.start(conn, project="p", agent="a", input=1, key="k1")

    began = semel.start_many(conn, **WANTED, inputs=[1, 2, 3, 2], keys=["k1", "k2", None, "k2"])

    assert (2, 2) == (began.total, began.duplicates)
    assert row(conn, old.run_id)["batch"] is None
    assert "duplicate" == semel.start(conn, project="p", agent="a", input=2, key="k2").outcome
    with pytest.raises(KeyConflict, match="input 1: its key"):
        semel.start_many(conn, **{**WANTED, "batch": "c"}, inputs=[9, 8], keys=["k9", "k1"])
    assert 3 == one(conn, "select count(*) from semel.runs")
    assert "new" == semel.start(conn, project="p", agent="a", input=7, key="k9").outcome


@pytest.mark.parametrize(
    ("keys", "said"),
    [(["a"], "input 1 has no key"), (["a", "b", "c"], "more keys"), (["a", "\n"], "key 1")],
)
def test_keys_are_as_many_as_inputs_and_each_is_one(conn: Conn, keys: Any, said: str) -> None:
    with pytest.raises((BadRequest, BadKey), match=said):
        semel.start_many(conn, **WANTED, inputs=[1, 2], keys=keys)
    assert [] == inputs(conn)


def test_the_digest_does_not_depend_on_pages(conn: Conn, monkeypatch: Any) -> None:
    keys = [f"k{n}" for n in range(5)]
    semel.start_many(conn, **WANTED, inputs=range(5), keys=keys)
    monkeypatch.setattr("semel.runtime.start_many.PAGE_INPUTS", 2)
    assert "duplicate" == semel.start_many(conn, **WANTED, inputs=range(5), keys=keys).outcome


def test_psycopg(dsn: str, conn: Conn) -> None:
    with psycopg.connect(dsn) as mine:
        semel.start_many(mine, **WANTED, inputs=[1])
        assert [] == inputs(conn)
        mine.rollback()
        semel.start_many(mine, **WANTED, inputs=[2])
        with pytest.raises(BadRequest):
            semel.start_many(mine, **{**WANTED, "batch": "c"}, inputs=[3, {}, {1}])
        mine.commit()
    assert [2] == inputs(conn)


async def _two(mine: Any, begin: Callable[[], Any]) -> None:
    with pytest.raises(Boom):
        async with begin():
            await semel.start_many(mine, **WANTED, inputs=[1], keys=["k"])
            raise Boom
    async with begin():
        await semel.start_many(mine, **WANTED, inputs=[2], keys=["k"])
        with pytest.raises(BadRequest):
            await semel.start_many(mine, **{**WANTED, "batch": "c"}, inputs=[3, {1}])


def test_psycopg_async(dsn: str, conn: Conn) -> None:
    async def go() -> None:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as mine:
            await _two(mine, mine.transaction)
            await semel.start_many(mine, **{**WANTED, "batch": "c"}, inputs=[4])

    asyncio.run(go())
    assert [2, 4] == inputs(conn)


def test_asyncpg(dsn: str, conn: Conn) -> None:
    import asyncpg

    parts = conninfo_to_dict(dsn)

    async def go() -> None:
        mine = await asyncpg.connect(
            host=parts["host"], user=parts["user"], database=parts["dbname"]
        )
        await _two(mine, mine.transaction)
        await semel.start_many(mine, **{**WANTED, "batch": "c"}, inputs=[4])
        await mine.close()

    asyncio.run(go())
    assert [2, 4] == inputs(conn)


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_sqlalchemy_async(dsn: str, conn: Conn, driver: str) -> None:
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    async def go() -> None:
        engine = create_async_engine(url(dsn, driver))
        async with AsyncSession(engine) as session:
            await _two(session, session.begin)
        await engine.dispose()

    asyncio.run(go())
    assert [2] == inputs(conn)


def test_sqlalchemy(dsn: str, conn: Conn) -> None:
    from sqlalchemy import create_engine
    from sqlalchemy.orm import Session

    engine = create_engine(url(dsn, "psycopg"))
    with Session(engine) as session:
        semel.start_many(session, **WANTED, inputs=[1])
        session.rollback()
        semel.start_many(session, **WANTED, inputs=[2])
        with pytest.raises(BadRequest):
            semel.start_many(session, **{**WANTED, "batch": "c"}, inputs=[3, {1}])
        session.commit()
    engine.dispose()
    assert [2] == inputs(conn)


def test_django(dsn: str, conn: Conn) -> None:
    import django
    from django.conf import settings

    if not settings.configured:
        settings.configure(USE_TZ=True)
        django.setup()
    from django.db.utils import ConnectionHandler

    parts = conninfo_to_dict(dsn)
    config = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts["dbname"],
        "USER": parts["user"],
        "HOST": parts["host"],
    }
    mine = ConnectionHandler({"default": config})["default"]
    mine.set_autocommit(False)
    semel.start_many(mine, **WANTED, inputs=[1], keys=["k"])
    mine.rollback()
    semel.start_many(mine, **WANTED, inputs=[2], keys=["k"])
    with pytest.raises(BadRequest):
        semel.start_many(mine, **{**WANTED, "batch": "c"}, inputs=[3, {1}])
    mine.commit()
    mine.close()
    assert [2] == inputs(conn)
