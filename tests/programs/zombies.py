"""Handlers that stand still before a write, and make it as soon as they can go on."""

import asyncio
from typing import Any

from sagas import app, go, mark  # type: ignore[import-not-found]  # it stands beside this one

from semel import Run


async def gone_on(run: Run) -> None:
    """Stand still until somebody says go."""
    mark(run.id, "ready")
    # In the loop's own thread: it thaws in the middle of this.
    while not go(run.id, "go"):  # noqa: ASYNC110 - an event of another process
        await asyncio.sleep(0.005)


async def a_step(run: Run) -> str:
    await gone_on(run)
    return "result"


def act(run_id: str) -> None:
    mark(run_id, "executed")


@app.agent("zombie")  # type: ignore[untyped-decorator]
async def zombie(run: Run) -> Any:
    try:
        return await WAYS[run.input](run)
    finally:
        mark(run.id, "stopped")


async def an_intent(run: Run) -> None:
    await gone_on(run)
    await run.step("s", act, str(run.id), undo=take_back_it)


@app.compensation("take-back-it")  # type: ignore[untyped-decorator]
def take_back_it(run_id: str, *, result: Any) -> None:
    mark(run_id, "undo")


async def an_approval(run: Run) -> None:
    await gone_on(run)
    await run.approval("restart web", action={"pod": "web-1"})


async def a_child(run: Run) -> None:
    await gone_on(run)
    await run.spawn("zombie", "completion")


async def a_transaction(run: Run) -> None:
    async with run.transaction("t") as tx:
        await tx.execute(
            "insert into public.business (run_id, value) values (%s, 1)", (run.id,)
        )
        await gone_on(run)


async def a_failure(run: Run) -> None:
    await gone_on(run)
    raise ValueError("of its own")


WAYS: dict[str, Any] = {
    "step": lambda run: run.step("s", a_step, run),
    "intent": an_intent,
    "approval": an_approval,
    "child": a_child,
    "transaction": a_transaction,
    "completion": gone_on,
    "failure": a_failure,
}
