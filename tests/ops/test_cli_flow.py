"""`semel agent set`, `clear` and `list`, and a start with a concurrency key, as an operator types them."""

from functools import partial
from typing import Any

import pytest

from fix_cli import Semel
from fix_world import LEASE, Conn, row, start_run
from semel.core import claims, flow, workers
from semel.db.execute import run


@pytest.fixture
def there(here: Semel) -> Semel:
    """Commands in the project of the tests."""
    return partial(here, SEMEL_PROJECT="p")


def announce(conn: Conn, **said: Any) -> None:
    call = workers.worker_register(
        "p", "w", host="h", pid=1, slots=1, agents=[("a", 3, 5, "async")],
        flows=[flow.Flow(**said)],
    )  # fmt: skip
    run(conn, call)


def listed(there: Semel) -> dict[str, Any]:
    [line] = there("agent", "list", "--json").lines
    return {
        name: line[name]
        for name in ("max_running", "rate", "per", "per_limit", "key_waiting", "edits")
    }


def test_an_operator_sets_limits_and_clears_them_and_the_list_says_so(
    there: Semel, conn: Conn
) -> None:
    announce(conn, rate=flow.rate("100/1m"), per="customer.id", per_limit=2)
    code = {"max_running": 5, "per": "customer.id", "per_limit": 2, "key_waiting": 0}
    rate = {"claims": 100, "seconds": 60.0, "left": 100}
    assert {**code, "rate": rate, "edits": None} == listed(there)

    said = there(
        "agent", "set", "a", "--concurrency", "1", "--rate", "3/2h", "--per-limit", "4"
    )
    assert "set in project p" in said.out
    assert "was set so before" in there("agent", "set", "a", "--concurrency", "1").out
    announce(conn, rate=flow.rate("7/1m"))

    found = listed(there)
    assert (1, 4, ["concurrency", "per_limit", "rate"]) == (
        found["max_running"],
        found["per_limit"],
        found["edits"],
    )
    assert {"claims": 3, "seconds": 7200.0, "left": 3} == found["rate"]
    assert "3/2h" in there("agent", "list").out
    there("agent", "clear", "a", "--rate")
    assert {"claims": 7, "seconds": 60.0, "left": 7} == listed(there)["rate"]
    there("agent", "clear", "a")
    assert (5, None, None) == tuple(
        listed(there)[name] for name in ("max_running", "per_limit", "edits")
    )
    assert "was not set" in there("agent", "clear", "a").out
    there("agent", "set", "a", "--rate", "none", "--concurrency", "none")
    assert (None, None) == (listed(there)["rate"], listed(there)["max_running"])


@pytest.mark.parametrize(
    ("words", "mend"),
    [
        (("--rate", "0/1m"), "pause the agent"),
        (("--rate", "-1/1m"), "as 100/1m"),
        (("--rate", "fast"), "as 100/1m"),
        (("--rate", "5/2d"), "1ms to 24h"),
        (("--concurrency", "0"), "pause the agent"),
        (("--concurrency", "x"), "or none"),
        (("--per-limit", "none"), "write 1 to"),
        ((), "at least one of"),
    ],
)
def test_a_limit_that_is_none_is_refused_with_the_mend(
    there: Semel, words: tuple[str, ...], mend: str
) -> None:
    said = there("agent", "set", "a", *words)

    assert 2 == said.code
    assert mend in " ".join(said.err.split())


def test_a_start_says_its_concurrency_key(there: Semel, conn: Conn) -> None:
    there("run", "start", "a", "--concurrency-key", "c1")
    start_run(conn, concurrency_key="c1")
    assert 1 == len(run(conn, claims.run_claim("p", "a", "w", limit=5, lease=LEASE)))

    [held] = there("agent", "list", "--json").lines

    assert (1, 1, 1) == (held["waiting"], held["running"], held["key_waiting"])


def test_what_runs_beyond_a_lowered_limit_goes_on(there: Semel, conn: Conn) -> None:
    announce(conn)
    started = [start_run(conn) for _ in range(4)]
    taken = run(conn, claims.run_claim("p", "a", "w", limit=3, lease=LEASE))

    there("agent", "set", "a", "--concurrency", "1")

    assert [] == run(conn, claims.run_claim("p", "a", "w", limit=3, lease=LEASE))
    assert 3 == len(taken)
    assert ["RUNNING"] * 3 == [row(conn, each)["status"] for each in started[:3]]
