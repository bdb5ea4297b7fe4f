"""
Drain: how fast workers finish a backlog of jobs that do nothing.

From the first handler call until the database shows every job finished. Every call of a handler
is recorded, and a drain in which a job was handled twice or never is no figure but an error.
"""

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
from contestants import Contestant
from server import Server

from semel.db.pool import connect

DRAIN_SECONDS_MAX = 180


def database(server: Server, who: Contestant) -> str:
    """A fresh database of *who*'s, set up; answers its name."""
    template, name = f"{who.name}_template", f"{who.name}_work"
    if not server.exists(template):
        server.make(template)
        who.ask(server.url(template), "setup")
    server.make(name, of=template)
    return name


def drain(server: Server, who: Contestant, *, jobs: int, workers: int = 1) -> dict[str, float]:
    """One drain of *jobs*; answers its rate and what each job has cost."""
    name = database(server, who)
    url = server.url(name)
    who.ask(url, "fill", jobs)
    with connect(url, name="bench") as conn:
        figures = drained(server, who, conn, jobs=jobs, workers=workers)
        if who.proof:
            [(proved,)] = conn.execute(who.proof).fetchall()
            if proved != jobs:
                raise RuntimeError(
                    f"{who.name}: {proved} of {jobs} jobs are finished as they should be"
                )
    server.drop(name)
    return figures


def drained(
    server: Server,
    who: Contestant,
    conn: psycopg.Connection[Any],
    *,
    jobs: int,
    workers: int = 1,
) -> dict[str, float]:
    """Drain the *jobs* that wait in *conn*'s database."""
    name = conn.info.dbname
    server.settle()
    before = server.counters(name)
    with at_work(who, server.url(name), jobs=jobs, workers=workers) as crew:
        began, ended = crew.finish(conn, jobs)
        used = crew.used()
        crew.prove(jobs)
    after = server.counters(name)
    return {
        "rate": jobs / (ended - began),
        "seconds": ended - began,
        "cpu_us": used["cpu_seconds"] / jobs * 1e6,
        "rss_mb": used["rss_mb"],
        **{what: (after[what] - before[what]) / jobs for what in before},
    }


class Crew:
    """Worker processes of one contestant, and what their recorders have written."""

    def __init__(
        self, who: Contestant, processes: Sequence[subprocess.Popen[bytes]], folder: Path
    ) -> None:
        self.who = who
        self.processes = processes
        self.folder = folder

    def notes(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in self.folder.glob("*.json")]

    def finish(self, conn: psycopg.Connection[Any], jobs: int) -> tuple[float, float]:
        """Wait until all is finished; answers when the first handler began, and when that was."""
        deadline = time.time() + DRAIN_SECONDS_MAX
        while time.time() < deadline:
            if sum(note["count"] for note in self.notes()) >= jobs:
                [(left,)] = conn.execute(self.who.unfinished).fetchall()
                if left == 0:
                    return min(n["first"] for n in self.notes() if n["count"]), time.time()
            if all(process.poll() is not None for process in self.processes):
                break
            time.sleep(0.005)
        raise RuntimeError(f"{self.who.name} did not finish: {self.notes()}\n{self._logs()}")

    def alive(self) -> None:
        """
        Somebody works.

        Raises:
            RuntimeError: all have ended.
        """
        if all(process.poll() is not None for process in self.processes):
            raise RuntimeError(f"{self.who.name} ended: {self.notes()}\n{self._logs()}")

    def _logs(self) -> str:
        return "\n".join(path.read_text()[-2000:] for path in self.folder.glob("*.log"))

    def prove(self, jobs: int) -> None:
        """
        Each job was handled once.

        Raises:
            RuntimeError: one was not.
        """
        deadline = time.time() + 10
        while not all("distinct" in note for note in self.notes()):
            if time.time() > deadline:
                raise RuntimeError(f"{self.who.name}: no recorder came to rest")
            time.sleep(0.01)
        notes = self.notes()
        count = sum(note["count"] for note in notes)
        distinct = sum(note["distinct"] for note in notes)
        if not count == distinct == jobs:
            raise RuntimeError(
                f"{self.who.name}: {count} calls for {jobs} jobs, {distinct} distinct"
            )

    def used(self) -> dict[str, float]:
        """CPU seconds and the most memory so far, over all processes."""
        tick = os.sysconf("SC_CLK_TCK")
        seconds, peak = 0.0, 0
        for process in self.processes:
            stat = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            seconds += (int(stat[11]) + int(stat[12])) / tick
            status = Path(f"/proc/{process.pid}/status").read_text()
            peak += int(status.partition("VmHWM:")[2].split()[0])
        return {"cpu_seconds": seconds, "rss_mb": peak / 1024}


@contextmanager
def at_work(
    who: Contestant, url: str, *, jobs: int, workers: int = 1, **env: str
) -> Generator[Crew]:
    """Workers of *who*; they are told to stop at the end, and ended if they do not."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        processes = [
            who.start(
                url,
                folder / f"{n}.log",
                BENCH_OUT=str(folder / f"{n}.json"),
                BENCH_JOBS=str(jobs),
                BENCH_WORKER=f"w{n}",
                **env,
            )
            for n in range(workers)
        ]
        try:
            yield Crew(who, processes, folder)
        finally:
            for process in processes:
                stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ask *process* and its children to stop; after five seconds, end them."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):  # it went by itself
            os.killpg(process.pid, signum)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            continue
        return
