"""
Pick-up: from a job's commit to its handler's first line, with an idle worker, at an easy pace.

Both ends read the one clock of this machine. Ours tells when its own statement was answered,
since `semel.start` rings for the workers after the commit and before it returns.
"""

import time

from contestants import Contestant
from drain import at_work, database
from measure import quantile
from server import Server

RATE = 20.0
WARM_SECONDS = 2.0


def pickup(server: Server, who: Contestant, *, jobs: int) -> dict[str, float]:
    """p50 and p99 in ms, from the commit and from the beginning of the call."""
    name = database(server, who)
    url = server.url(name)
    with at_work(who, url, jobs=jobs, BENCH_TIMED="1") as crew:
        time.sleep(WARM_SECONDS)  # an idle worker is what is measured
        answer = who.ask(url, "pace", jobs, RATE)
        crew.prove(jobs)
        [times] = [note["times"] for note in crew.notes()]
    server.drop(name)
    figures = {}
    for since in ("committed", "began"):
        began: list[float] = answer[since]  # type: ignore[assignment] # the driver's own list
        waits = [(there - here) * 1e3 for here, there in zip(began, times, strict=True)]
        figures[f"{since}_p50_ms"] = quantile(waits, 0.5)
        figures[f"{since}_p99_ms"] = quantile(waits, 0.99)
    return figures
