"""One agent as two deploys of it differ; rolling_1.py and rolling_2.py are those programs."""

import os
from collections.abc import Awaitable, Callable

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
