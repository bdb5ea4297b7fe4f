"""Agents as two deploys of them differ; rolling_1.py and busy_1.py, and those of 2, are those programs."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from datetime import timedelta

import psycopg

from semel import App, Run


def note(run_id: str, word: str) -> str:
    """Leave a row that outlives this process."""
    with psycopg.connect(os.environ["SEMEL_DSN"], autocommit=True) as conn:
        conn.execute(
            "insert into public.started (run_id, attempt, fence, word, pid) values (%s, 0, 0, %s, %s)",
            (run_id, word, os.getpid()),
        )
    return word


def deploy(version: str, after: Callable[[Run], Awaitable[str]]) -> App:
    """The program whose code goes on with *after* once its run is told to."""
    app = App()

    @app.compensation("unbegin")
    def unbegin(run_id: str, _: str, *, result: str | None = None) -> None:
        note(run_id, f"undone by {version}")

    @app.agent("roll", version=version)
    async def roll(run: Run) -> str:
        await run.step("begin", note, str(run.id), f"begun by {version}", undo=unbegin)
        await run.signal("go")
        return await after(run)

    return app


def busy(version: str) -> App:
    """The program of an agent that is at work all the time, in each deploy."""
    app = App()

    @app.agent("busy", version=version)
    async def work(run: Run) -> str:
        await run.step("did", note, str(run.id), f"did by {version}")
        if run.input == "park":
            await run.sleep(timedelta(seconds=1))
        await asyncio.sleep(0.05)
        return version

    return app
