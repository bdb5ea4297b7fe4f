"""An error that a handler went on in spite of is the same at each attempt, whatever it holds."""

from typing import Any

import pytest

from durable import begin, claim, journal
from fix_world import Conn, one
from semel import Run
from workshop import work


class Mute(Exception):
    """Says nothing of itself."""

    def __str__(self) -> str:
        raise ValueError("no")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a\0b"),
        ValueError("half \ud800"),
        ValueError(float("nan")),
        ValueError(10**5000),
        ValueError("x" * 1_000_000),
        ValueError(object(), 1),
        KeyError("a\0"),
        Mute(),
    ],
    ids=["nul", "surrogate", "nan", "number", "long", "object", "key", "mute"],
)
def test_an_odd_error_is_journaled_and_caught_again(
    dsn: str, conn: Conn, error: Exception
) -> None:
    executed: list[str] = []

    def fails() -> None:
        executed.append("fails")
        raise error

    async def handler(run: Run) -> Any:
        try:
            await run.step("fails", fails)
        except type(error):
            await run.step("after", executed.append, "after")
        if run.attempt == 1:
            raise RuntimeError("again")

    held = begin(conn)
    work(dsn, held, handler)
    work(dsn, claim(conn), handler)

    assert ["fails", "after"] == executed
    assert "COMPLETED" == one(
        conn, "select status from semel.runs where run_id = %s", held.run_id
    )
    assert 10_000 > len(str(journal(conn, held.run_id)))
