"""What docs/tools.md shows is what happens, and its example runs."""

import asyncio
import os
import re
import sys
from dataclasses import MISSING, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fix_tools import QUICK
from fix_world import Conn, Programs, row, start_run, until
from semel import ToolError
from semel.config import ToolServer, load
from semel.config.values import shown
from semel.testing import World

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tools.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_the_program_of_the_page_does_what_it_says(
    dsn: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {}
    exec(compile("\n\n".join(blocks("python")), "tools.md", "exec"), names)

    def restart(pod: str) -> str:
        if pod == "web-1":
            raise ToolError("no such pod")
        return "restarted"

    async def go() -> None:
        stubs = {"cluster": {"list_pods": lambda ns: [f"{ns}-1"], "restart": restart}}
        async with World(names["app"], dsn, tools=stubs) as world:
            runs = [
                await world.start(agent, value)
                for agent, value in (("triage", None), ("settle", 100), ("report", None))
            ]
            await world.drain()
            results = [(await world.run(run)).result for run in runs]
            assert ["not restarted: cluster.restart: no such pod", "booked 5", None] == results
            told = capsys.readouterr().out.split()[-1]
            await world.answer(told, {"result": {"pages": 7}})
            await world.drain()
            assert {"pages": 7} == (await world.run(runs[2])).result

    asyncio.run(go())


def test_the_settings_of_the_page_are_some(tmp_path: Path) -> None:
    (tmp_path / "semel.toml").write_text("\n".join(blocks("toml")))
    assert {"cluster", "files", "billing"} == set(load({}, tmp_path).tools)


@pytest.mark.crash
def test_the_example_calls_its_tools(
    programs: Programs, conn: Conn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("tools.py", "tool_server.py"):
        (tmp_path / "examples").mkdir(exist_ok=True)
        (tmp_path / "examples" / name).write_text((ROOT / "examples" / name).read_text())
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    config = str(ROOT / "examples" / "tools.toml")
    programs.semel("worker", "examples/tools.py", "--project", "p", config=config, **QUICK)
    run_id = start_run(conn, "refund", {"order": 7})
    until(lambda: row(conn, run_id)["finished_at"])
    want = {"said": "refunded 665", "letter": "Dear customer, we have refunded 665 cents."}
    assert want == row(conn, run_id)["result"]


def test_a_setting_of_a_server_is_documented_with_its_default() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    part = page.partition("\n## Tools\n")[2].partition("\n## ")[0]
    told = dict(re.findall(r"^\| `(\w+)` \| `?([^`|]+?)`? \|", part, re.MULTILINE))
    for field in fields(ToolServer):
        if field.name == "name":
            continue
        wanted = {"None": "none", "()": "none", "False": "false"}
        default = "none" if field.default is MISSING else field.default
        said = shown(default) if isinstance(default, timedelta) else str(default)
        assert wanted.get(said, said) == told[field.name], field.name
