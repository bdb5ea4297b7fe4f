"""
Batch: many jobs started at once by one program, durable when it returns.

Ours is `semel.start_many`, all or none, with a batch whose progress can be read; the peer's its
bulk enqueue, in one transaction too. Timed is the call with its connection, not Python's start.
"""

from contestants import Contestant
from drain import database
from server import Server


def batch(server: Server, who: Contestant, *, jobs: int) -> dict[str, float]:
    """Jobs in a second, and for each the program's CPU and WAL; the program's peak of memory."""
    name = database(server, who)
    url = server.url(name)
    server.settle()
    before = server.counters(name)
    figures = {key: float(str(value)) for key, value in who.ask(url, "batch", jobs).items()}
    after = server.counters(name)
    figures["wal_bytes"] = (after["wal_bytes"] - before["wal_bytes"]) / jobs
    server.drop(name)
    return figures
