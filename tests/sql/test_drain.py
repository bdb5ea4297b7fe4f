"""The drain sees what rows say and what no row says yet: open and prepared transactions."""

import shutil
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from fix_server import FAST, in_memory
from fix_world import Conn, one, until_blocked
from seed_ledger import INPUT, TABLE, envelope, leave, seed
from semel.core.drain import LEDGER, Processing, drain_count, writers
from semel.core.operations import Identity, operation_beat, operation_begin
from semel.db import embedded, migrate
from semel.db.execute import run
from semel.db.pool import connect

SECOND = timedelta(seconds=1)


def identity(request: str, project: str = "p") -> Identity:
    return Identity(
        project=project,
        request_id=request,
        event_type="pay",
        actor=None,
        envelopes=[envelope(INPUT)],
    )


def test_processing_is_counted_by_project_and_mode(conn: Conn) -> None:
    holder, dead = uuid4(), uuid4()
    now = one(conn, "select clock_timestamp()")
    run(conn, operation_begin(identity("engine")))
    conn.execute("update semel.operation set target = 'ENGINE'")
    for request in ("a", "b"):
        run(conn, operation_begin(identity(request)))
    run(
        conn,
        operation_begin(identity("c"), mode="recorded", holder=dead, now=now - 30 * SECOND),
    )
    run(conn, operation_begin(identity("d"), mode="recorded", holder=holder, now=now))
    run(conn, operation_begin(identity("a", "q")))

    assert run(conn, drain_count(now=now)) == [
        Processing(project="p", atomic=2, recorded=2, held=1),
        Processing(project="q", atomic=1, recorded=0, held=0),
    ]
    run(conn, operation_beat("p", dead, "web", now=now))
    assert run(conn, drain_count(now=now))[0].held == 2


def test_a_transaction_is_a_writer_from_its_claim_to_its_end(conn: Conn, other: Conn) -> None:
    assert run(conn, writers(LEDGER)) == []
    with other.transaction():
        other.execute("select count(*) from semel.operations")
        assert run(conn, writers(LEDGER)) == []
        run(other, operation_begin(identity("r")))
        [writer] = run(conn, writers(LEDGER))
        assert writer.pid == other.info.backend_pid
        assert (writer.gid, writer.state, writer.waits) == (None, "idle in transaction", False)
        assert writer.age is not None
        assert timedelta(0) <= writer.age < timedelta(minutes=1)
        assert run(other, writers(LEDGER)) == []  # its own transaction is none
    assert run(conn, writers(LEDGER)) == []


def test_a_writer_to_a_partition_is_one_to_its_table(conn: Conn, other: Conn) -> None:
    conn.execute(
        "create schema seed; create table seed.input_event (n int) partition by range (n)"
    )
    conn.execute(
        "create table seed.part partition of seed.input_event for values from (0) to (9)"
    )
    with other.transaction():
        other.execute("insert into seed.part values (1)")
        assert [each.pid for each in run(conn, writers(TABLE))] == [other.info.backend_pid]


def test_who_waits_to_write_is_told_as_one_who_waits(conn: Conn, dsn: str, other: Conn) -> None:
    seed(conn)
    with connect(dsn) as third, third.pipeline(), conn.transaction():
        conn.execute("lock table seed.input_event in share mode")
        third.execute(
            "insert into seed.input_event (request_id, target, event_type) values ('r', 'API', 'e')"
        )
        third.pgconn.flush()
        until_blocked(other, third.info.backend_pid)
        [writer] = run(other, writers(TABLE))
        assert (writer.pid, writer.waits) == (third.info.backend_pid, True)


@pytest.fixture(scope="module")
def preparing() -> Iterator[str]:
    """A server that keeps prepared transactions, which is off by default."""
    home = Path(tempfile.mkdtemp(prefix="semel-test-", dir=in_memory()))
    home.chmod(0o755)
    try:
        with embedded.use(
            home / "pg", settings={**FAST, "max_prepared_transactions": "5"}
        ) as server:
            with connect(server.dsn) as conn:
                migrate.migrate(conn)
            yield server.dsn
    finally:
        embedded.stop(home / "pg")
        shutil.rmtree(home, ignore_errors=True)


def test_a_prepared_transaction_is_a_writer_that_no_session_has(preparing: str) -> None:
    with connect(preparing) as conn:
        seed(conn)
        with connect(preparing) as writer:
            writer.execute("begin")
            run(writer, operation_begin(identity("r")))
            leave(writer, "k", "PENDING")
            writer.execute("prepare transaction 'later'")
        for table in (LEDGER, TABLE):
            [found] = run(conn, writers(table))
            assert (found.pid, found.gid, found.state) == (None, "later", "prepared")
            assert found.age is not None
        conn.execute("rollback prepared 'later'")
        assert run(conn, writers(LEDGER)) == []
