"""Agents that call tools; the folder of the tests' tool server is in TOOLS_FOLDER."""

import asyncio
import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import semel
from semel import App, Run, ToolError, ToolNotCalled, ToolTimedOut, ToolUnknown

app = App()
FOLDER = Path(os.environ.get("TOOLS_FOLDER", "."))


@app.agent("call")
async def call(run: Run) -> Any:
    """Calls what its input says, and answers the result, or the code of what was raised."""
    told = run.input
    within = timedelta(seconds=told.get("timeout", 60))
    try:
        return await run.tool(
            told["server"], told["tool"], told.get("args"), timeout=within,
            callback=told.get("callback", False),
        )  # fmt: skip
    except (ToolError, ToolTimedOut, ToolUnknown, ToolNotCalled) as error:
        await run.step("note", str, error)
        return {"code": error.code, "said": str(error)}


@app.agent("call-in-thread")
def call_in_thread(run: Run) -> Any:
    return run.tool("cluster", "list_pods", {"ns": "web"})


@app.agent("several")
async def several(run: Run) -> Any:
    """Three calls at once, two of them of one tool."""
    return await asyncio.gather(
        run.tool("cluster", "list_pods", {"ns": "web"}, name="web"),
        run.tool("cluster", "list_pods", {"ns": "db"}, name="db"),
        run.tool("app", "double", {"value": 21}),
    )


@app.agent("square")
async def square(run: Run) -> int:
    return int(run.input) ** 2


@app.agent("breaks", max_attempts=1)
async def breaks(_run: Run) -> None:
    raise ValueError("it is broken")


@app.tool("double")
def double(value: int, *, idempotency_key: str) -> Any:
    return [2 * value, len(idempotency_key)]


@app.tool("raises")
async def raises() -> None:
    raise LookupError("nothing there")


@app.tool("answers-later")
async def answers_later(callback: str) -> Any:
    (FOLDER / "callback").write_text(callback)
    return semel.LATER


def die(name: str) -> str:
    """Takes the worker with it, the first time."""
    if not (FOLDER / name).exists():
        (FOLDER / name).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


@app.tool("dies")
def dies() -> str:
    return die("dies")


@app.tool("dies-but-may", idempotent=True)
def dies_but_may() -> str:
    return die("may")
