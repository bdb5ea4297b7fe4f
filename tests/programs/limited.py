"""Agents with limits. Each start and end of one is a row in public.started."""

import asyncio
from typing import Any

from agents import note  # type: ignore[import-not-found]  # it stands beside this one

from semel import App, Run

app = App()


async def hold(run: Run) -> None:
    await asyncio.to_thread(note, run)
    await asyncio.sleep(float(run.input["seconds"]))
    await asyncio.to_thread(note, run, "end")


@app.agent("two", concurrency=2)
async def two(run: Run) -> None:
    await hold(run)


@app.agent("keyed", per="customer.id")
async def keyed(run: Run) -> None:
    await hold(run)


@app.agent("rated", rate="4/1s")
async def rated(run: Run) -> Any:
    await asyncio.to_thread(note, run)


@app.agent("plain")
async def plain(run: Run) -> None:
    await asyncio.sleep(float(run.input["seconds"]))
