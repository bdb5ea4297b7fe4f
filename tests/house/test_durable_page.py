"""What docs/durable.md and docs/testing.md show is what happens."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fix_world import Conn
from semel.testing import World

ROOT = Path(__file__).parents[2]


def blocks(page: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text()
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@pytest.fixture
def page() -> dict[str, Any]:
    """The program that docs/durable.md is, from its first line to its last."""
    names: dict[str, Any] = {}
    exec(compile("\n\n".join(blocks("durable.md")), "durable.md", "exec"), names)
    return names


@pytest.fixture
def play(page: dict[str, Any], dsn: str) -> Callable[[Callable[[World], Awaitable[Any]]], Any]:
    """What a story in a world of the page's application answers."""

    def in_world(story: Callable[[World], Awaitable[Any]]) -> Any:
        async def whole() -> Any:
            async with World(page["app"], dsn) as world:
                return await story(world)

        return asyncio.run(whole())

    return in_world


async def ended(world: World, agent: str, value: Any = None) -> Any:
    run_id = await world.start(agent, value)
    await world.drain()
    run = await world.run(run_id)
    assert "COMPLETED" == run.status, run.failure_reason
    return run.result


def test_steps_retries_and_keys(
    page: dict[str, Any], play: Callable[..., Any], conn: Conn
) -> None:
    async def story(world: World) -> None:
        assert {"net": 40, "gross": 48} == await ended(world, "quote", {"order": 7})
        assert 30 == await ended(world, "pay", {"amount": 30})
        assert [30] == list(page["charged"].values())
        run = await world.start("fetch")
        for _ in range(3):
            await world.drain()
            world.advance(seconds=2)
        assert "here it is" == (await world.run(run)).result
        assert "published" == await ended(world, "publish")
        assert await ended(world, "fan-out", [1, 2]) == [{"net": 40, "gross": 48}] * 2

    play(story)


def test_transactions(play: Callable[..., Any], conn: Conn) -> None:
    conn.execute(
        "create table public.orders (id int generated always as identity, item text, receipt bool)"
    )

    async def story(world: World) -> None:
        world.crash_at("worker.transaction.after")
        run = await world.start("order", {"item": "a book"})
        await world.drain()
        world.advance(seconds=31)
        await world.drain()
        result = (await world.run(run)).result
        assert 1 == result["order"]
        assert ["sent", 2] == [
            (await world.run(result["receipt"])).result,
            (await world.run(run)).attempt_count,
        ]
        assert 2 == await ended(world, "order-function", {"item": "a pen"})

    play(story)
    assert [("a book", True), ("a pen", None)] == conn.execute(
        "select item, receipt from public.orders order by id"
    ).fetchall()


@pytest.mark.parametrize(("said", "result"), [("yes", "yes"), (None, "no answer")])
def test_waits(play: Callable[..., Any], said: str | None, result: str) -> None:
    async def story(world: World) -> None:
        run = await world.start("follow-up")
        await world.drain()
        if said:
            await world.signal(run, "answered", {"text": said})
        world.advance(days=3)
        await world.drain()
        world.advance(days=4)
        await world.drain()
        assert result == (await world.run(run)).result

    play(story)


@pytest.mark.parametrize(
    ("decision", "result"), [("approve", ["alice"]), ("reject", "left alone")]
)
def test_approvals(play: Callable[..., Any], decision: Any, result: Any) -> None:
    async def story(world: World) -> None:
        run = await world.start("restart", {"pod": "web-1"})
        await world.drain()
        await world.decide(run, decision, voter="alice")
        await world.drain()
        assert result == (await world.run(run)).result

    play(story)


@pytest.mark.parametrize("paid", [True, False])
def test_sagas(page: dict[str, Any], play: Callable[..., Any], paid: bool) -> None:
    async def story(world: World) -> None:
        run = await world.start("trip", {"who": "ada", "paid": paid})
        await world.drain()
        undo = await world.undo(run)
        assert (paid, None if paid else ["return", "outward"]) == (
            undo is None,
            undo and undo.result["undone"],
        )

    play(story)
    assert page["seats"] == ({"12A": "ada", "14C": "ada"} if paid else {})


def test_a_program_of_its_own_is_tested_as_the_page_says(tmp_path: Path) -> None:
    files = dict(
        zip(["conftest.py", "shop.py", "test_shop.py"], blocks("testing.md"), strict=True)
    )
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("SEMEL_", "PYTEST_"))}
    words = ["-q", "-W", "error", "-p", "no:cacheprovider", "-p", "no:xdist"]

    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "4 passed" in done.stdout, done.stdout + done.stderr
