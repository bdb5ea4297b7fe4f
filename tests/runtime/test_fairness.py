"""Fairness under load, with real workers: one project's flood is not another's wait."""

from datetime import timedelta
from uuid import UUID

from fix_world import Conn, Programs, one, start_run, status, until

FLOOD = """
insert into semel.run (project_id, run_id, agent, status, lane, priority, ready_at, input, created_at)
select 'big', semel.uuid_at(clock_timestamp()), 'plain', 'PENDING', 5, 5, clock_timestamp(),
    '{"seconds": 0.05}', clock_timestamp() from generate_series(1, 10000)
"""
#: From the commit of a run to its claim.
DELAY_MAX = timedelta(seconds=2)


def running(conn: Conn, project: str) -> list[UUID]:
    found = conn.execute(
        "select run_id from semel.runs where project_id = %s and status = 'RUNNING'", (project,)
    )
    return [run_id for [run_id] in found]


def test_a_flood_in_one_project_delays_the_first_run_of_another_by_less_than_two_seconds(
    conn: Conn, programs: Programs
) -> None:
    conn.execute(FLOOD)
    programs.worker("limited.py", worker_slots="10")
    until(lambda: one(conn, "select count(*) from semel.run_history") > 100)

    run_id = start_run(conn, "plain", {"seconds": 0}, project="small")

    until(lambda: status(conn, run_id) == "COMPLETED")
    delay = one(
        conn,
        "select started_at - created_at from semel.runs where run_id = %s",
        run_id,
    )
    assert delay < DELAY_MAX
    assert one(conn, "select count(*) from semel.run where project_id = 'big'") > 0


def test_the_last_slot_of_a_worker_is_kept_from_the_biggest_project_while_another_waits(
    conn: Conn, programs: Programs
) -> None:
    for _ in range(6):
        start_run(conn, "plain", {"seconds": 600}, project="big")
    programs.worker("limited.py", worker_slots="3", worker_lease="3s", worker_poll="50ms")
    until(lambda: len(running(conn, "big")) == 3)
    for _ in range(2):
        small = start_run(conn, "plain", {"seconds": 600}, project="small")
        conn.execute("select semel.run_cancel('big', %s)", (running(conn, "big")[0],))

        until(lambda: [small] == running(conn, "small"))  # noqa: B023 - asked before the next

        assert 2 == len(running(conn, "big"))
        conn.execute("select semel.run_cancel('small', %s)", (small,))
        until(lambda: len(running(conn, "big")) == 3)  # nobody else waits


def test_runs_of_a_rate_come_when_they_are_due_and_the_others_meanwhile(
    conn: Conn, programs: Programs
) -> None:
    limited = [start_run(conn, "rated") for _ in range(8)]
    programs.worker("limited.py", worker_poll="10s")
    until(lambda: sum(status(conn, each) == "COMPLETED" for each in limited) >= 4)
    run_id = start_run(conn, "plain", {"seconds": 0})
    conn.execute("select pg_notify('semel', 'plain')")
    until(lambda: status(conn, run_id) == "COMPLETED")

    until(lambda: all(status(conn, each) == "COMPLETED" for each in limited))

    # A poll would have come after ten seconds; and no claim came before its time.
    first, last = conn.execute(
        "select min(started_at), max(started_at) from semel.runs where agent = 'rated'"
    ).fetchall()[0]
    assert timedelta(seconds=0.75) < last - first < timedelta(seconds=8)
