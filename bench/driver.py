"""
Driver: what every Python contestant shares, ours and the peers' alike.

A driver is a program with a few verbs; run.py starts it, in the environment where that
contestant is installed. The last line it prints is its answer, as JSON.

    setup             make the schema in BENCH_DSN
    fill N            a backlog of N jobs, in bulk
    batch N           N jobs in one transaction, as a program starts many at once; how fast
    work              be a worker until told to stop; the recorder writes to BENCH_OUT
    call N SECONDS    N callers, each enqueues one job after the other, each durable
    pace N RATE       N jobs, RATE in a second; answers when each call began and was committed
"""

import asyncio
import json
import os
import resource
import sys
import threading
import time
from array import array
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import uvloop

DSN = os.environ.get("BENCH_DSN", "")
#: With the number in front, a job of about 100 bytes.
PAYLOAD = {"kind": 1, "message": "somebody has to look at this, and it had better be soon"}

#: Steps of a job, where steps are what is measured.
STEPS = int(os.environ.get("BENCH_STEPS", "0"))

Call = Callable[[int, int], Awaitable[float | None]]


class Recorder:
    """
    Counts every handler call; a thread writes the count where run.py looks for it.

    Args:
        timed: Keep the time of every call too, for pick-up latencies.
    """

    def __init__(self) -> None:
        self._jobs = int(os.environ.get("BENCH_JOBS", "100000"))
        self._timed = "BENCH_TIMED" in os.environ
        self._seen = bytearray(self._jobs)
        self._times = array("d", bytes(8 * self._jobs)) if self._timed else array("d")
        self._count = 0
        self._first = 0.0
        if path := os.environ.get("BENCH_OUT"):
            threading.Thread(target=self._write_on, args=(Path(path),), daemon=True).start()

    def hit(self, job: int) -> None:
        """A handler was called with *job*, a number below BENCH_JOBS."""
        if not self._count:
            self._first = time.time()
        self._count += 1
        self._seen[job] += 1
        if self._timed:
            self._times[job] = time.time()

    def _write_on(self, path: Path) -> None:
        before, told = -1, -1
        while True:
            count = self._count
            note: dict[str, Any] = {"count": count, "first": self._first}
            # The exact sums wait for a moment of rest: they would take time from the handlers.
            if count == before != told:
                note["distinct"] = self._jobs - self._seen.count(0)
                note["times"] = list(self._times)
                told = count
            if count != before or "distinct" in note:
                draft = path.with_suffix(".draft")
                draft.write_text(json.dumps(note))
                draft.replace(path)
            before = count
            time.sleep(0.02)


def serve(
    *,
    setup: Callable[[], Awaitable[None]],
    fill: Callable[[int], Awaitable[None]],
    work: Callable[[], Awaitable[None]] | None,
    calls: Callable[[int], AbstractAsyncContextManager[Call]],
    batch: Callable[[int], Awaitable[None]] | None = None,
    run: Callable[..., Any] = uvloop.run,
) -> None:
    """
    Do what the command line says.

    Args:
        calls: Opens what *n* callers need; yields call(caller, job), which returns once the job
            is durable, and may answer when that was.
        batch: Jobs 0 to *n* in one transaction; it is timed with its connection.
        run: Runs a coroutine; uvloop for all alike, as its fastest users have it.
    """
    verb, *told = sys.argv[1:]
    match verb:
        case "setup":
            answer = run(setup())
        case "fill":
            answer = run(fill(int(told[0])))
        case "batch":
            assert batch is not None
            answer = run(_timed(batch, int(told[0])))
        case "work":
            assert work is not None
            answer = run(work())
        case "call":
            answer = run(_call(calls, int(told[0]), float(told[1])))
        case "pace":
            answer = run(_pace(calls, int(told[0]), float(told[1])))
        case _:
            sys.exit(f"{verb}: no such verb")
    print(json.dumps(answer), flush=True)


async def _timed(batch: Callable[[int], Awaitable[None]], jobs: int) -> dict[str, float]:
    used, began = time.process_time(), time.perf_counter()
    await batch(jobs)
    took = time.perf_counter() - began
    return {
        "rate": jobs / took,
        "cpu_us": (time.process_time() - used) / jobs * 1e6,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


async def _call(
    calls: Callable[[int], AbstractAsyncContextManager[Call]], callers: int, seconds: float
) -> dict[str, float]:
    async with calls(callers) as call:
        took: list[float] = []

        async def caller(number: int, until: float) -> None:
            job = 0
            while (began := time.perf_counter()) < until:
                await call(number, job)
                took.append(time.perf_counter() - began)
                job += 1

        await asyncio.gather(*(caller(n, time.perf_counter() + 0.3) for n in range(callers)))
        warmed = len(took)  # so far connections were opened and statements prepared
        took.clear()
        began = time.perf_counter()
        await asyncio.gather(*(caller(n, began + seconds) for n in range(callers)))
        whole = time.perf_counter() - began
    took.sort()
    return {
        "calls": warmed + len(took),
        "rate": len(took) / whole,
        "p50_ms": took[len(took) // 2] * 1e3,
        "p99_ms": took[int(len(took) * 0.99)] * 1e3,
    }


async def _pace(
    calls: Callable[[int], AbstractAsyncContextManager[Call]], jobs: int, rate: float
) -> dict[str, list[float]]:
    began_at, committed_at = [], []
    async with calls(1) as call:
        start = time.time()
        for job in range(jobs):
            await asyncio.sleep(max(0.0, start + job / rate - time.time()))
            began_at.append(time.time())
            committed = await call(0, job)
            committed_at.append(committed or time.time())
    return {"began": began_at, "committed": committed_at}
