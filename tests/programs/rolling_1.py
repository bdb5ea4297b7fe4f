"""The agent of rolling.py as it was."""

from rolling import deploy, note  # type: ignore[import-not-found]  # it stands beside this one

from semel import DoNotRetry, Run


async def after(run: Run) -> str:
    if run.input == "fail":
        raise DoNotRetry("told to fail")
    done: str = await run.step("old-end", note, str(run.id), "ended by 1")
    return done


app = deploy("1", after)
