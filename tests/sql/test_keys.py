"""Concurrency keys: no more runs of one key are leased at once than their agent allows."""

import threading
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from fix_world import DEAD, LEASE, NOW, Conn, one, row, second, start_run, until_blocked
from semel.core import (
    agents,
    bulk,
    claims,
    debounce,
    flow,
    inbox,
    recovery,
    runs,
    transitions,
    upkeep,
    waits,
    workers,
)
from semel.db.execute import run
from semel.edges import start
from semel.errors import BadRequest
from semel.model import Claim

#: Where runs go that waited for their key, and the usual lanes behind.
LANES = (*range(20, 31), *range(11))


def claim(
    conn: Conn, worker: str = "w1", limit: int = 10, lanes: Any = LANES, at: float = 0
) -> list[Claim]:
    call = claims.run_claim(
        "p", "a", worker, limit=limit, lease=LEASE, lanes=lanes, now=second(at)
    )
    return run(conn, call)


def keyed(conn: Conn, *keys: str | None, **more: Any) -> list[UUID]:
    return [start_run(conn, concurrency_key=key, **more) for key in keys]


def declared(conn: Conn, **said: Any) -> None:
    """A worker announces the agent with what its keys are."""
    call = workers.worker_register(
        "p", "w", host="h", pid=1, slots=1, agents=[("a", 3, None, "async")],
        flows=[flow.Flow(**said)],
    )  # fmt: skip
    run(conn, call)


def ids(held: list[Claim]) -> list[UUID]:
    return [each.run_id for each in held]


def complete(conn: Conn, *held: Claim) -> None:
    ended = [(each.run_id, each.fence, "null") for each in held]
    answers = run(conn, runs.run_complete("p", held[0].worker, ended, now=second(1)))
    assert {"won"} == {answer.outcome for answer in answers}


def waiting(conn: Conn) -> int:
    return int(one(conn, "select count(*) from semel.runs where key_full"))


def test_one_run_of_a_key_runs_at_a_time_and_the_next_goes_when_it_ends(conn: Conn) -> None:
    first, second_, other, free = keyed(conn, "c1", "c1", "c2", None)

    held = claim(conn)

    assert [first, other, free] == ids(held)
    assert [] == claim(conn, "w2")
    assert row(conn, second_)["key_full"]
    complete(conn, held[0])
    assert [second_] == ids(claim(conn, "w2"))


def test_what_waited_for_its_key_goes_ahead_of_its_priority_and_behind_a_higher_one(
    conn: Conn,
) -> None:
    _, waits_ = keyed(conn, "c1", "c1")
    [held] = claim(conn)
    behind, above = start_run(conn), start_run(conn, priority=9)

    complete(conn, held)

    lanes = (0, 1, 25, 5)
    assert [above, waits_, behind] == ids(claim(conn, lanes=lanes))


def test_an_agent_says_how_many_of_a_key(conn: Conn) -> None:
    declared(conn, per_limit=2)
    started = keyed(conn, *["c1"] * 5)

    held = claim(conn)

    assert started[:2] == ids(held)
    complete(conn, *held)
    assert started[2:4] == ids(claim(conn))


def test_a_path_into_the_input_is_a_key_too(conn: Conn) -> None:
    declared(conn, per="customer.id")
    inputs: list[Any] = [
        {"customer": {"id": 7}},
        {"customer": {"id": 7}, "large": "x" * 5000},
        {"customer": {"id": True}},
        {"customer": {"id": [7]}},
        {"customer": None},
        7,
    ]
    started = [start_run(conn, value=value) for value in inputs]

    held = claim(conn)

    assert [started[0], *started[2:]] == ids(held)
    assert ["7", "7", "true", None, None, None] == [
        row(conn, run_id)["concurrency_key"] for run_id in started
    ]
    complete(conn, held[0])
    assert [started[1]] == ids(claim(conn))


def test_a_start_says_its_key_in_place_of_the_path(conn: Conn) -> None:
    declared(conn, per="id")
    one_, two = (start_run(conn, value={"id": 1}, concurrency_key=key) for key in ("x", "y"))

    assert [one_, two] == ids(claim(conn))


def test_a_claim_walks_a_flood_of_one_key_once_and_comes_to_the_others(conn: Conn) -> None:
    flood = keyed(conn, *["c1"] * 60)
    other = start_run(conn)

    held = claim(conn, limit=10)

    assert [flood[0], other] == ids(held)
    assert 59 == waiting(conn)
    assert [] == run(conn, claims.run_hint(["a"]))


def ends(conn: Conn, held: Claim, how: str) -> None:
    """*held* frees its slot."""
    match how:
        case "fails":
            later = timedelta(minutes=1)
            run(conn, runs.run_fail(held, "E-RUN-006", "boom", delay=later, now=NOW))
        case "is given back":
            run(conn, runs.run_release("p", "w1", [(held.run_id, held.fence)], now=NOW))
            conn.execute("update semel.run set due_at = ready_at, ready_at = null"
                         " where run_id = %s", (held.run_id,))  # fmt: skip
        case "loses its worker":
            lost = recovery.run_reap("p", dead_after=DEAD, trust=True, now=second(60))
            assert [held.run_id] == [each.run_id for each in run(conn, lost)]
        case "waits":
            sleep = waits.Wait(key="s", kind="sleep", due=timedelta(hours=1))
            call = waits.run_park("p", "w1", held.run_id, held.fence, [sleep], now=NOW)
            assert "parked" == run(conn, call)[0][1]
        case "is cancelled":
            run(conn, transitions.run_cancel("p", held.run_id, now=NOW))
        case _:
            conn.execute("update semel.run set deadline_at = %s where run_id = %s",
                         (NOW, held.run_id))  # fmt: skip
            run(conn, transitions.run_overdue("p", now=NOW))


@pytest.mark.parametrize(
    "how",
    ["fails", "is given back", "loses its worker", "waits", "is cancelled", "is overdue"],
)
def test_whatever_frees_a_key_lets_the_next_go(conn: Conn, how: str) -> None:
    _, next_ = keyed(conn, "c1", "c1")
    [held] = claim(conn)

    ends(conn, held, how)

    assert [next_] == ids(claim(conn, "w2", at=61))


def test_the_end_of_one_that_never_ran_lets_the_next_go(conn: Conn) -> None:
    _, two, three = keyed(conn, "c1", "c1", "c1")
    [held] = claim(conn)
    complete(conn, held)

    run(conn, transitions.run_cancel("p", two, now=NOW))

    assert [three] == ids(claim(conn))


def test_a_higher_limit_lets_go_who_waits_and_a_lower_one_ends_nobody(conn: Conn) -> None:
    started = keyed(conn, *["c1"] * 4)
    claim(conn)

    run(conn, agents.agent_set("p", "a", ["per_limit"], per_limit=3))
    held = claim(conn)
    run(conn, agents.agent_set("p", "a", ["per_limit"], per_limit=1))

    assert started[1:3] == ids(held)
    assert [] == claim(conn)
    assert 3 == one(conn, "select count(*) from semel.runs where status = 'RUNNING'")
    complete(conn, *held)
    assert [] == claim(conn)


def test_upkeep_lets_go_who_waits_for_a_key_that_has_room(conn: Conn) -> None:
    declared(conn, per_limit=1)
    keyed(conn, *["c1"] * 3, *["c2"] * 3)
    claim(conn)
    declared(conn, per_limit=3)

    assert 4 == run(conn, claims.key_look("p", now=NOW))
    assert 0 == run(conn, claims.key_look("p", now=NOW))


def test_two_claimers_never_hold_one_key_beyond_its_limit(conn: Conn, other: Conn) -> None:
    declared(conn)
    keyed(conn, "c1", "c1", None)
    with conn.transaction():
        assert 1 == len(claim(conn, limit=1))
        # The agent's row is the first claimer's: what has a key is left for the next claim.
        held = claim(other, "w2")
        assert [None] == [row(other, each.run_id)["concurrency_key"] for each in held]
    assert [] == claim(other, "w2")


def test_a_claim_that_finds_its_holder_just_ending_forgets_nobody(
    conn: Conn, other: Conn
) -> None:
    declared(conn)
    _, next_ = keyed(conn, "c1", "c1")
    [held] = claim(conn, limit=1)
    with conn.transaction():
        complete(conn, held)
        assert [] == claim(other, "w2")
        assert 0 == waiting(other)

    assert [next_] == ids(claim(other, "w2"))


def test_a_key_outlives_the_end_of_its_run(conn: Conn) -> None:
    first, second_ = keyed(conn, "c1", "c1")
    [held] = claim(conn)
    run(conn, transitions.run_cancel("p", first, now=NOW))
    assert held.run_id == first
    assert [second_] == ids(claim(conn))

    assert "won" == run(conn, transitions.run_retry("p", first, now=NOW))[0]

    assert [] == claim(conn)
    assert row(conn, first)["key_full"]


def test_another_agents_or_projects_key_is_another_key(conn: Conn) -> None:
    keyed(conn, "c1")
    run(conn, runs.run_start("p", "b", None, concurrency_key="c1"))
    run(conn, runs.run_start("q", "a", None, concurrency_key="c1"))

    for project, agent in (("p", "a"), ("p", "b"), ("q", "a")):
        assert run(conn, claims.run_claim(project, agent, "w", limit=5, lease=LEASE))


@pytest.mark.parametrize("key", ["", "x" * 256, "a\nb"])
def test_a_key_that_is_none_is_refused(conn: Conn, key: str) -> None:
    with pytest.raises(BadRequest, match="concurrency_key is a text of 1 to 255"):
        runs.run_start("p", "a", None, concurrency_key=key)
    if "\n" not in key:
        with pytest.raises(psycopg.Error, match="a concurrency key that is none"):
            conn.execute(
                "select semel.run_start('p', 'a', 'null', p_concurrency_key => %s)", (key,)
            )


def test_a_claim_takes_no_more_than_it_asks_for_however_far_it_looked(conn: Conn) -> None:
    keyed(conn, "c1", "c1", "c1", *[None] * 10)

    assert 3 == len(claim(conn, limit=3))


@pytest.mark.parametrize("limited", ["agent", "project"])
def test_the_hint_leaves_out_who_has_reached_a_limit(conn: Conn, limited: str) -> None:
    if limited == "agent":
        run(conn, agents.agent_set("p", "a", ["concurrency"], concurrency=1))
    else:
        conn.execute("select semel.project_limit('p', 1)")
    started = keyed(conn, None, None)
    first = row(conn, started[0])["ready_at"]
    from_marks = claims.run_hint(["a"], marks={("p", "a", "", 5): first})
    assert 1 == len(run(conn, claims.run_hint(["a"]))) == len(run(conn, from_marks))

    [held] = claim(conn)

    assert [] == run(conn, claims.run_hint(["a"])) == run(conn, from_marks)
    complete(conn, held)
    assert 1 == len(run(conn, claims.run_hint(["a"]))) == len(run(conn, from_marks))


def test_a_start_over_http_says_its_key(conn: Conn) -> None:
    body = b'{"agent": "a", "concurrency_key": "c1"}'
    offers = [start.read("p", "api", body, key=key, headers={}) for key in ("k1", "k2", "k1")]

    first, second_, again = run(conn, inbox.event_accept("p", offers))

    assert first.run_id == again.run_id
    assert second_.run_id is not None
    assert "c1" == row(conn, second_.run_id)["concurrency_key"]
    assert 1 == len(claim(conn))
    assert [] == claim(conn)


def test_who_was_held_by_an_operator_when_its_key_was_freed_is_let_go_by_upkeep(
    conn: Conn, other: Conn
) -> None:
    _, next_ = keyed(conn, "c1", "c1")
    [held] = claim(conn)
    with other.transaction():
        run(other, transitions.run_prioritise("p", next_, priority=9, now=NOW))
        complete(conn, held)
    assert [] == claim(conn, at=2)

    [need] = run(conn, upkeep.due_projects())
    assert need.held, "nothing of the project is leased, but somebody waits"
    assert 1 == run(conn, claims.key_look(need.project, now=second(2)))
    assert [next_] == ids(claim(conn, at=2, lanes=range(20, 31)))


def test_keys_that_have_no_room_keep_nobody_from_those_that_have(conn: Conn) -> None:
    keyed(conn, "a", "a", "b", "b")
    claim(conn)
    conn.execute("delete from semel.run where concurrency_key = 'b' and worker_id is not null")

    [[let_go]] = conn.execute("select semel.key_look('p', 1)").fetchall()

    assert 1 == let_go


def test_a_call_that_is_debounced_changes_the_key_of_a_run_that_waits(conn: Conn) -> None:
    declared(conn, per="customer")
    quiet = timedelta(seconds=1)

    def call(customer: str, n: int, at: float) -> UUID:
        value = {"customer": customer, "n": n}
        told = debounce.run_debounce("p", "a", value, key="k", quiet=quiet, now=second(at))
        return run(conn, told).run_id

    start_run(conn, value={"customer": "c1"})
    [held] = claim(conn)
    waits_ = call("c1", 1, 0)
    run(conn, claims.run_due("p", now=second(1)))
    assert [] == claim(conn, at=1)
    assert waits_ == call("c1", 2, 1)
    assert row(conn, waits_)["key_full"], "its key is the same: it keeps its place"
    [behind] = [start_run(conn, value={"customer": "c1"})]
    assert [] == claim(conn, at=1)
    complete(conn, held)

    assert waits_ == call("c2", 3, 2)

    assert {waits_, behind} == set(ids(claim(conn, at=3)))
    assert ["c2", "c1"] == [row(conn, each)["concurrency_key"] for each in (waits_, behind)]


def test_a_page_of_cancels_holds_all_its_runs_before_it_lets_others_go(
    conn: Conn, other: Conn, dsn: str
) -> None:
    _, next_ = keyed(conn, "c1", "c1")
    [held] = claim(conn)
    behind = start_run(conn, "b")
    page = bulk.run_cancel_page("p", [held.run_id, behind])

    with conn.transaction(), psycopg.connect(dsn, autocommit=True) as third:
        conn.execute("select from semel.run where run_id = %s for update", (behind,))
        cancelling = threading.Thread(target=lambda: run(other, page))
        cancelling.start()
        until_blocked(third, other.info.backend_pid)
        # Another page may have come to it, and go on to what the first waits for.
        third.execute("select from semel.run where run_id = %s for update nowait", (next_,))
    cancelling.join()

    assert [next_] == ids(claim(conn, at=1))
