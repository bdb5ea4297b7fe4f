"""
Cost: what one run takes from its event to its end, in WAL and in PostgreSQL's CPU.

Events of about 100 bytes are accepted through group commit by eight callers, each with an id of
its own; then a worker claims and finishes their runs. It begins right after a checkpoint, so that
each page's first change costs its image, and nothing else writes.
"""

from calls import CALLERS
from contestants import OURS
from drain import at_work, database
from server import Server

from semel.db.pool import connect


def cost(server: Server, *, jobs: int) -> dict[str, float]:
    """Per run: WAL bytes in all and of the accept, and what the accept took, in CPU and time."""
    name = database(server, OURS)
    url = server.url(name)
    server.settle()
    before = server.counters(name)
    answer = OURS.ask(url, "accept", CALLERS, jobs)
    accepted = server.counters(name)
    with connect(url, name="bench") as conn:
        with at_work(OURS, url, jobs=jobs) as crew:
            began, ended = crew.finish(conn, jobs)
            crew.prove(jobs)
        after = server.counters(name)
        [(proved,)] = conn.execute(OURS.proof).fetchall()
    server.drop(name)
    if proved != jobs:
        raise RuntimeError(f"{proved} of {jobs} runs are finished as they should be")

    def each(what: str, since: dict[str, int], until: dict[str, int]) -> float:
        return (until[what] - since[what]) / jobs

    return {
        "wal_bytes": each("wal_bytes", before, after),
        "accept_wal_bytes": each("wal_bytes", before, accepted),
        "accept_server_cpu_us": each("server_cpu_us", before, accepted),
        "accept_cpu_us": float(str(answer["cpu_us"])),
        "accepts_per_second": float(str(answer["rate"])),
        "rate": jobs / (ended - began),
    }
