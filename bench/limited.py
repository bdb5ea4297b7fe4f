"""
Limited: how fast workers finish one agent's backlog beside the long queue of a limited one.

The limited agent may have one run at once and has it: its handler lasts longer than the drain. So
every claim, hint and look meets its 100,000 queued runs. The figure is a ratio of two drains of
one round, alone and beside them.
"""

from dataclasses import replace

from contestants import OURS
from drain import database, drained
from server import Server

from semel.db.pool import connect

QUEUED = 100_000

_FLOOD = """
insert into semel.run (project_id, run_id, agent, status, lane, priority, ready_at, input,
    created_at)
select 'bench', semel.uuid_at(clock_timestamp()), 'limited', 'PENDING', 5, 5,
    clock_timestamp() - interval '1 hour' + n * interval '1 us', '{}', clock_timestamp()
from generate_series(1, %s) as n
"""


def beside_limited(server: Server, *, jobs: int) -> dict[str, float]:
    """The rate of a drain of *jobs*, alone and beside a limited agent's queue, and their ratio."""
    who = replace(OURS, unfinished="select count(*) from semel.run where agent = 'noop'")
    rates = {}
    for what in ("alone", "beside"):
        url = server.url(database(server, OURS))
        OURS.ask(url, "fill", jobs)
        with connect(url, name="bench") as conn:
            if what == "beside":
                conn.execute(_FLOOD, (QUEUED,))
                conn.execute("analyze semel.run")
            rates[what] = drained(server, who, conn, jobs=jobs)["rate"]
        server.drop(f"{OURS.name}_work")
    return {**rates, "ratio": rates["beside"] / rates["alone"]}
