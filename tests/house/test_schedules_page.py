"""What docs/schedules.md shows is what happens."""

import asyncio
import re
from pathlib import Path
from typing import Any

from fix_cli import Semel
from fix_world import Conn
from semel.core.reads import list_events
from semel.core.schedules import schedule_seed
from semel.db.execute import run
from semel.testing import World

PAGE = (Path(__file__).parents[2] / "docs" / "schedules.md").read_text()


def program() -> Any:
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
        exec(compile(block, "schedules.md", "exec"), names)
    return names["app"]


def test_the_program_of_the_page_reports_each_night_and_its_tick_is_explained(
    dsn: str, conn: Conn, here: Semel
) -> None:
    app = program()

    async def story() -> list[Any]:
        async with World(app, dsn, project="ops") as world:
            await world.drain()
            world.advance(days=1)
            await world.drain()
            return [one.result for one in await world.runs() if "region" not in one.input]

    assert [{"night of": "2026-01-01T19:00:00Z"}] == asyncio.run(story())
    key = "schedule:nightly:2026-01-01T19:00:00Z"
    keys = [each["provider_event_id"] for each in run(conn, list_events("ops"))]
    assert key in keys
    said = here(
        "event", "explain", "--source", "semel.schedule", "--id", key, "--project", "ops"
    )
    assert (0, True) == (said.code, "run" in said.out), said


def test_the_commands_of_the_page_work(conn: Conn, here: Semel) -> None:
    app = program()
    run(conn, schedule_seed("default", "reports", app.schedules))
    [block] = re.findall(r"^```console\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)

    for line in block.splitlines():
        words = re.findall(r'"([^"]*)"|(\S+)', line.removeprefix("$ semel "))
        said = here(*(quoted or plain for quoted, plain in words))
        assert 0 == said.code, said
