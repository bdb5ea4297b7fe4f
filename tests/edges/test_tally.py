"""Requests for operations are counted once each, by what became of them."""

from typing import Any

import pytest

from fix_world import Conn
from semel.edges import tally
from semel.edges.once import once
from semel.errors import KeyConflict, NeedsReconcile
from semel.ops.ledger_metrics import Operations


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> tally.Tally:
    own = tally.Tally()
    for module in ("semel.edges.attempt", "semel.edges.rest.recorded"):
        monkeypatch.setattr(f"{module}.TALLY", own)
    return own


def ask(conn: Conn, key: str | None, body: Any = 1, *, fail: bool = False) -> None:
    with once(conn, project="p", key=key, operation="pay", actor="alice", input=body) as op:
        if op.replay is None:
            if fail:
                raise LookupError("no money")
            op.reply(body)


def test_each_outcome_is_counted(conn: Conn, counted: tally.Tally) -> None:
    ask(conn, "a")
    ask(conn, "a")
    with pytest.raises(KeyConflict):
        ask(conn, "a", 2)
    with pytest.raises(LookupError):
        ask(conn, "b", fail=True)
    ask(conn, "b")
    ask(conn, None)  # without a key there is no operation
    conn.execute("update semel.operation set status = 'PROCESSING' where attempts = 2")
    with pytest.raises(NeedsReconcile):
        ask(conn, "b")

    now = counted.read()
    assert {name: count for name, count in now.outcomes.items() if count} == {
        "executed": 2,
        "replayed": 1,
        "conflict": 1,
        "failed": 1,
        "unknown": 1,
    }
    assert sum(now.buckets) == 3
    assert now.seconds > 0


def test_the_numbers_are_shown_as_prometheus_wants_them(counted: tally.Tally) -> None:
    counted.count("replayed")
    counted.ended("executed", 0.0)  # long ago, so in the last bucket

    operations, seconds = Operations(counted).collect()

    assert {s.labels["outcome"]: s.value for s in operations.samples}["replayed"] == 1.0
    by_bound = {s.labels["le"]: s.value for s in seconds.samples if "le" in s.labels}
    assert (by_bound["10.0"], by_bound["+Inf"]) == (0.0, 1.0)
