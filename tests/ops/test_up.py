"""`semel up`: from nothing to a finished run, and nothing left behind."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fix_world import until
from semel.db import embedded

pytestmark = pytest.mark.crash

EXAMPLES = Path(__file__).parents[2] / "examples"


class Up:
    """A real `semel up` in a home of its own."""

    def __init__(self, home: Path, log: Path, **environ: str) -> None:
        self.home = home
        self.log = log
        self.environ = {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith("SEMEL_")
            },
            "SEMEL_HOME": str(home),
            "SEMEL_PORT": "0",
            "ONCALL_SECONDS": "0.1",
            **environ,
        }
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "semel", "up", "--json", str(EXAMPLES / "oncall.py")],
                env=self.environ,
                cwd=home.parent,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, log.read_text()
        self.said = json.loads(line)

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = [
            json.loads(line) for line in self.log.read_text().splitlines() if line[:1] == "{"
        ]
        return [line for line in lines if line.get("event") == name]

    def pid_of(self, name: str) -> int:
        return int(
            [e for e in self.events("process.started") if e["process"] == name][-1]["pid"]
        )

    def semel(self, *words: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "semel", *words],
            env=self.environ,
            cwd=self.home.parent,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def post(self) -> tuple[int, dict[str, Any]]:
        found = re.search(r"(\S+/in/\S+)$", self.said["curl"])
        assert found
        request = urllib.request.Request(
            found[1],
            data=(EXAMPLES / "alert.json").read_bytes(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.loads(answer.read())

    def show(self, run_id: str) -> Any:
        return self.semel("run", "show", run_id, "--json")

    def ended(self, run_id: str) -> Any:
        return until(lambda: (shown := self.show(run_id))["finished_at"] and shown)

    def asked(self, run_id: str) -> str:
        """What the run asks, once it does."""
        until(lambda: self.show(run_id)["status"] == "WAITING_APPROVAL")
        return str(self.show(run_id)["approvals"][-1]["approval_id"])

    def approve(self, approval_id: str) -> None:
        self.semel("approval", "approve", approval_id, "--as", "alice", "--json")

    def acts(self) -> list[str]:
        """What the example has done to its nodes."""
        lines = Path(self.home, "cluster.log").read_text().splitlines()
        return [line.partition("  ")[0] for line in lines]

    def shell(self, script: str) -> str:
        """What a line of the docs says here."""
        words = script.replace(".venv/bin/semel", f"{sys.executable} -m semel")
        done = subprocess.run(
            ["bash", "-ec", words.replace(".semel/", f"{self.home}/")],
            env=self.environ,
            cwd=EXAMPLES.parent,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def processes(self) -> list[str]:
        """Every process that has to do with this home."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                environ = (process / "environ").read_bytes()
                words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if words and os.fsencode(self.home) in environ + words.encode():
                    found.append(f"{process.name} {words}")
        return found


@pytest.fixture
def up() -> Iterator[Callable[..., Up]]:
    made: list[Up] = []
    with tempfile.TemporaryDirectory(prefix="semel-up-") as folder:
        Path(folder).chmod(0o755)  # ours: the server's account must reach it when we are root

        def start(**environ: str) -> Up:
            made.append(Up(Path(folder, "home"), Path(folder, f"log{len(made)}"), **environ))
            return made[-1]

        yield start
        for one in made:
            one.process.kill()
            one.process.communicate()
        until(lambda: not any(one.processes() for one in made), within=20)
        embedded.stop(Path(folder, "home"))


def test_one_command_makes_an_alert_one_finished_run(up: Callable[..., Up]) -> None:
    one = up()

    first, second = one.post(), one.post()
    run_id = first[1]["run_id"]
    one.approve(one.asked(run_id))
    shown = one.ended(run_id)

    assert (first[0], first[1]["duplicate"]) == (201, False)
    assert second[0] == 200
    assert second[1]["duplicate"]
    assert (run_id, "E-IDEMPOTENT-001") == (second[1]["run_id"], second[1]["code"])
    assert (shown["status"], shown["attempt_count"]) == ("COMPLETED", 1)
    assert [each["outcome"] for each in shown["attempts"]] == ["parked", "completed"]
    assert shown["result"]["title"] == "HighCPU"
    assert one.acts() == ["node1 drained", "node1 restarted"]

    # A worker that is killed comes back, and the terminal's Ctrl-C leaves nothing behind.
    killed = one.pid_of("worker")
    os.kill(killed, signal.SIGKILL)
    until(lambda: one.pid_of("worker") != killed)
    [ended] = one.events("process.ended")
    assert (ended["process"], ended["reason"]) == ("worker", "SIGKILL")
    one.process.send_signal(signal.SIGINT)
    assert one.process.wait(15) == 0
    until(lambda: not one.processes(), within=15)


def lines_to_paste(page: str, heading: str = "Kill it and see") -> list[str]:
    text = (EXAMPLES.parent / page).read_text().partition(f"## {heading}\n")[2]
    return re.findall(r"^\$ (.*?)(?:  +#.*)?$", text.partition("\n## ")[0], re.MULTILINE)


@pytest.mark.timeout(180)
def test_what_the_readme_says_about_killing_a_worker_is_what_happens(
    up: Callable[..., Up],
) -> None:
    """Its lines, after those of "See it": only the worker is found by its pid, and is faster."""
    lines = lines_to_paste("README.md")
    assert lines == lines_to_paste("docs/operate.md")
    slowly, start, kill, show = lines
    assert slowly == "ONCALL_SECONDS=60 make up"
    assert kill == "pkill -KILL -f 'semel worker'"
    one = up()
    assert one.post()[0] == 201
    one.process.send_signal(signal.SIGINT)
    assert one.process.wait(15) == 0

    one = up(ONCALL_SECONDS="4", SEMEL_WORKER_LEASE="3s")

    def killed() -> None:
        worker = one.pid_of("worker")
        words = Path("/proc", str(worker), "cmdline").read_bytes().replace(b"\0", b" ").decode()
        assert re.search("semel worker", words)
        os.kill(worker, signal.SIGKILL)
        until(lambda: one.pid_of("worker") != worker)

    run_id = one.shell(f"{start}\necho $RUN_ID").strip()
    until(lambda: one.show(run_id)["status"] == "RUNNING")
    killed()
    one.approve(one.asked(run_id))
    until(lambda: one.acts() == ["node1 drained", "node1 restarted"])
    killed()
    ended = one.ended(run_id)

    assert (ended["status"], ended["attempt_count"]) == ("COMPLETED", 3)
    outcomes = [each["outcome"] for each in ended["attempts"]]
    assert outcomes == ["lost", "parked", "lost", "completed"]
    assert one.acts() == ["node1 drained", "node1 restarted"]
    assert "was lost" in one.shell(f"RUN_ID={run_id}; {show}")


@pytest.mark.timeout(120)
def test_what_the_readme_says_about_deciding_is_what_happens(up: Callable[..., Up]) -> None:
    """Its lines in their order; what they print are the ids that the next ones need."""
    one = up()
    run_id = one.post()[1]["run_id"]
    said: list[str] = []
    for line in lines_to_paste("README.md", "Decide"):
        if line.startswith(".venv/bin/semel approval list"):
            approval_id = one.asked(run_id)
        if "run show" in line:
            one.ended(run_id)
        words = line.replace("APPROVAL_ID", approval_id).replace("RUN_ID", run_id)
        said.append(one.shell(words))
        if "run start" in line:
            run_id = said[-1].strip()
        if "approval list" in line:
            assert approval_id in said[-1]
        if "run show RUN_ID" in line and "FAILED" in said[-1]:
            undo = one.show(run_id)["compensation"]["run_id"]
            assert one.ended(undo)["result"] == {"undone": ["drain"]}

    shown = [each for each in said if each.startswith("run  ")]
    assert [re.findall(r"^status +(\w+)", each, re.MULTILINE)[0] for each in shown] == [
        "COMPLETED",
        "COMPLETED",
        "FAILED",
    ]
    assert "it does that every night" in shown[1]
    node1, node9 = ["node1 drained", "node1 restarted"], ["node9 drained", "node9 restarted"]
    assert one.acts() == [*node1, *node9, "node9 put back"]


@pytest.mark.parametrize("program", ["import nosuch_module", "x = 1", "x = ("])
def test_an_application_without_an_app_ends_it_and_says_why(
    tmp_path: Path, program: str
) -> None:
    (tmp_path / "broken.py").write_text(program)
    with tempfile.TemporaryDirectory(prefix="semel-up-") as folder:
        Path(folder).chmod(0o755)
        environ = {**os.environ, "SEMEL_PORT": "0", "SEMEL_HOME": f"{folder}/home"}

        done = subprocess.run(
            [sys.executable, "-m", "semel", "up", "broken.py"],
            env=environ,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        embedded.stop(Path(folder, "home"))

    assert done.returncode == 2
    assert "E-CONFIG-001 broken.py" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_supervisor_that_is_killed_leaves_nothing_behind(up: Callable[..., Up]) -> None:
    one = up()
    assert one.processes()

    one.process.kill()

    one.process.wait()
    until(lambda: not one.processes(), within=15)


def test_a_port_that_is_taken_is_refused_with_the_name_of_who_has_it(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        environ = {**os.environ, "SEMEL_PORT": str(port), "SEMEL_HOME": str(tmp_path / "home")}

        done = subprocess.run(
            [sys.executable, "-m", "semel", "up"],
            env=environ,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    assert done.returncode == 2
    assert f"E-CONFIG-001 port {port} on 127.0.0.1 is not free" in done.stderr
    assert f"pid {os.getpid()}" in done.stderr
    assert "SEMEL_PORT" in done.stderr
    assert not (tmp_path / "home").exists()


def test_an_application_that_is_not_there_ends_it(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="semel-up-") as folder:
        Path(folder).chmod(0o755)
        environ = {**os.environ, "SEMEL_PORT": "0", "SEMEL_HOME": f"{folder}/home"}

        done = subprocess.run(
            [sys.executable, "-m", "semel", "up", "nosuch.py"],
            env=environ,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        embedded.stop(Path(folder, "home"))

    assert done.returncode == 2
    assert "nosuch.py: no such file" in done.stderr
