"""A real MCP server in a folder, and workers that are told of it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from fix_world import PROGRAMS, Conn, Programs, one, row, start_run, until

APP = str(PROGRAMS / "tools.py")
SERVER = str(PROGRAMS / "tool_server.py")
QUICK = {"worker_poll": "50ms", "worker_lease": "2s"}


class ToolWorld:
    """One folder: its server, the settings that lead there, and what was executed."""

    def __init__(self, folder: Path, programs: Programs, conn: Conn) -> None:
        self.folder = folder
        self.programs = programs
        self._conn = conn
        self._servers: list[subprocess.Popen[bytes]] = []

    def serve(self) -> str:
        """Start the MCP server over HTTP; answers its url."""
        (self.folder / "url").unlink(missing_ok=True)
        process = subprocess.Popen([sys.executable, SERVER, str(self.folder), "--http"])
        self._servers.append(process)
        until((self.folder / "url").exists)
        return (self.folder / "url").read_text()

    @property
    def serving(self) -> set[int]:
        """The processes that serve over HTTP."""
        return {process.pid for process in self._servers}

    def stop_serving(self) -> None:
        for process in self._servers:
            process.kill()
            process.wait()
        self._servers.clear()

    def settle(self, toml: str = "") -> None:
        """Write the settings: the server is cluster over HTTP, and local over stdio."""
        words = json.dumps([SERVER, str(self.folder)])
        honours = 'honours_key = ["charge"]\n'
        (self.folder / "semel.toml").write_text(
            f'[tools.cluster]\nurl = "{self.serve()}"\n{honours}'
            f"[tools.local]\ncommand = {json.dumps(sys.executable)}\nargs = {words}\n{honours}"
            f"{toml}"
        )

    def worker(self, **more: str) -> subprocess.Popen[bytes]:
        """A worker of the agents that call tools."""
        return self.programs.semel(
            "worker", APP, "--project", "p", config=str(self.folder / "semel.toml"),
            **{**QUICK, **more},
        )  # fmt: skip

    def call(self, tool: str, args: Any = None, server: str = "cluster", **more: Any) -> UUID:
        """A run that calls a tool."""
        asked = {"server": server, "tool": tool, "args": args, **more}
        return start_run(self._conn, "call", asked)

    def ends(self, run_id: UUID) -> dict[str, Any]:
        """The run, once it has ended."""
        until(lambda: row(self._conn, run_id)["finished_at"])
        return row(self._conn, run_id)

    def tool(self, run_id: UUID) -> dict[str, Any]:
        """Its call, of the public view."""
        found: dict[str, Any] = one(
            self._conn, "select to_jsonb(t) from semel.tools as t where run_id = %s", run_id
        )
        return found

    def executed(self) -> list[list[Any]]:
        """What the server executed: tool, key, pid."""
        log = self.folder / "executed"
        return (
            [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        )

    def hold(self) -> None:
        """Whoever executes something now does not come to an end."""
        (self.folder / "hold").touch()

    def let_go(self) -> None:
        (self.folder / "hold").unlink()


@pytest.fixture
def tools(
    tmp_path: Path, programs: Programs, conn: Conn, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ToolWorld]:
    monkeypatch.setenv("TOOLS_FOLDER", str(tmp_path))
    world = ToolWorld(tmp_path, programs, conn)
    yield world
    world.stop_serving()
