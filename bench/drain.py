"""
How fast runs start, and how fast one worker drains them, on this machine.

    make bench

A throwaway PostgreSQL with fsync on. A start is one transaction of its own, as a program makes
it; eight clients start at once. A drain is one worker process whose handler does nothing:
claim, execute, complete. Medians of five rounds, with the slowest and the fastest beside them.
"""

import asyncio
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import semel
from semel import App, Run
from semel.config import Settings, WorkerSettings
from semel.db import embedded, migrate
from semel.db.pool import connect
from semel.runtime.worker import Worker

ROUNDS = 5
RUNS = int(os.environ.get("BENCH_RUNS", "10000"))
CLIENTS = 8
SLOTS = 200

app = App()


@app.agent("nothing")
async def nothing(_run: Run) -> None:
    return None


def start(dsn: str) -> float:
    """Start RUNS runs from CLIENTS connections; answers runs per second."""

    def client(_: int) -> None:
        with connect(dsn) as conn:
            for n in range(RUNS // CLIENTS):
                semel.start(conn, project="bench", agent="nothing", input={"n": n})

    began = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(client, range(CLIENTS)))
    return RUNS / (time.perf_counter() - began)


async def drain(dsn: str) -> float:
    """Let one worker finish all that is there; answers runs per second."""
    settings = Settings(dsn=dsn, project="bench", worker=WorkerSettings(slots=SLOTS))
    worker = Worker(app, settings, target=__file__, dsn=dsn)
    with connect(dsn) as conn:
        began = time.perf_counter()
        working = asyncio.create_task(worker.run())
        unfinished = "select from semel.runs where finished_at is null limit 1"
        while conn.execute(unfinished).rowcount:  # noqa: ASYNC110 - only the database knows
            await asyncio.sleep(0.01)
        took = time.perf_counter() - began
    worker.stop()
    await working
    return RUNS / took


def shown(what: str, rates: Sequence[float]) -> str:
    median = statistics.median(rates)
    return f"{what}  {median:8,.0f} runs/s   ({min(rates):,.0f} to {max(rates):,.0f})"


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="semel-bench-"))
    folder.chmod(0o755)  # the server may run as another account than root
    try:
        with embedded.use(folder / "home") as server:
            with connect(server.dsn) as conn:
                migrate.migrate(conn)
                fsync, commit = conn.execute(
                    "select current_setting('fsync'), current_setting('synchronous_commit')"
                ).fetchall()[0]
            print(
                f"PostgreSQL {server.version}, fsync {fsync}, synchronous_commit {commit},"
                f" {os.cpu_count()} CPUs, Python {sys.version.split()[0]}; {RUNS} runs a round",
                flush=True,
            )
            starts, drains = [], []
            for _ in range(ROUNDS):
                starts.append(start(server.dsn))
                drains.append(asyncio.run(drain(server.dsn)))
        print(shown(f"start, {CLIENTS} clients  ", starts))
        print(shown("drain, one worker ", drains))
    finally:
        embedded.stop(folder / "home")
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
