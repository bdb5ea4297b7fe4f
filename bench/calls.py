"""
Calls: a Python program's single enqueue, many callers at once, each call durable when it returns.

Ours twice: `semel.start` on a connection of each caller's own, and `Acceptor.accept`, where
callers of one process share transactions, as an ingress's requests do.
"""

from contestants import Contestant
from drain import database
from server import Server

CALLERS = 8


def calls(server: Server, who: Contestant, *, seconds: float, **env: str) -> dict[str, float]:
    """What CALLERS callers get done in *seconds*: rate, p50_ms, p99_ms, and WAL for each call."""
    name = database(server, who)
    url = server.url(name)
    server.settle()
    before = server.counters(name)
    answer = who.ask(url, "call", CALLERS, seconds, **env)
    after = server.counters(name)
    server.drop(name)
    figures = {key: float(str(value)) for key, value in answer.items()}
    figures["wal_bytes"] = (after["wal_bytes"] - before["wal_bytes"]) / figures.pop("calls")
    return figures


def accepts(server: Server, who: Contestant, *, seconds: float) -> dict[str, float]:
    """The same with `Acceptor.accept`; ours alone has it."""
    return calls(server, who, seconds=seconds, BENCH_CALL="accept")
