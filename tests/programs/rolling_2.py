"""The agent of rolling.py with other steps: it cannot go on with what the old one began."""

from rolling import deploy, note  # type: ignore[import-not-found]  # it stands beside this one

from semel import Run


async def after(run: Run) -> str:
    done: str = await run.step("new-end", note, str(run.id), "ended by 2")
    return done


app = deploy("2", after)
