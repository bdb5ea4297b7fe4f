"""
Run: ours and the peers side by side, round by round, on one throwaway PostgreSQL.

    python bench/run.py [--rounds 5] [--peers pgqueuer,pgboss] [--parts drain,calls] [--quick]

`make bench` installs the peers and runs this. A peer that cannot run here is skipped with a line
that says what it wants; one that fails in a round is missing from that round, and its error is
printed and kept.
"""

import argparse
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import contestants
from batch import batch
from calls import accepts, calls
from contestants import HERE, OURS, PEERS, VENV, Contestant
from cost import cost
from digest import PLAIN, WAYS, digest, inputs
from drain import drain
from goals import HEAD, plain, verdicts
from idle import idle
from ingest import KINDS, ROUTE, ingest
from ledger import VARIANTS, ledger
from limited import beside_limited
from page import Results, write
from pickup import pickup
from pinned import SWEEPS, beside_history, beside_snapshot, pinned, remember
from server import Server, throwaway

from durable import resume, steps

PARTS = (
    "drain",
    "calls",
    "batch",
    "ingest",
    "pickup",
    "durable",
    "pinned",
    "cost",
    "digest",
    "idle",
    "limited",
)
ROUNDS = 5
#: Enough for the fixed part of WAL to be little, as it is in a real day.
COST_RUNS = 20_000
#: What is printed of a measurement as it goes: the first of these that it has.
TOLD = ("rate", "ratio", "committed_p50_ms", "statements", "ms")
DATA = HERE / "results.json"
PAGE = HERE.parent / "docs" / "benchmarks.md"


class Bench:
    """One run of the benchmark."""

    def __init__(
        self, server: Server, results: Results, peers: list[Contestant], quick: bool
    ) -> None:
        self._server = server
        self._results = results
        self._peers = peers
        self._jobs = 20_000 if quick else 100_000
        self._seconds = 2.0 if quick else 5.0
        self._paced = 100 if quick else 500
        self._still = 15.0 if quick else 60.0

    def drain(self, turn: int) -> None:
        for workers in (1, 2):
            what = f"drain, {workers} worker{'s' * (workers > 1)}"
            for who in turned([OURS, *self._peers], turn):
                jobs = min(self._jobs, who.backlog)
                self._add(what, who, drain, self._server, who, jobs=jobs, workers=workers)

    def limited(self, _turn: int) -> None:
        what = "drain beside a limited agent"
        self._add(what, OURS, beside_limited, self._server, jobs=self._jobs)

    def calls(self, turn: int) -> None:
        python = [peer for peer in self._peers if peer.enqueues]
        for who in turned([OURS, *python], turn):
            what = "semel.start" if who is OURS else "enqueue"
            self._add(what, who, calls, self._server, who, seconds=self._seconds)
        self._add("event_accept", OURS, accepts, self._server, OURS, seconds=self._seconds)

    def batch(self, turn: int) -> None:
        """A hundred thousand whatever the run: it is a batch's size that is in question."""
        for who in turned([OURS, *(p for p in self._peers if p.name == "pgqueuer")], turn):
            self._add("a batch of 100,000", who, batch, self._server, who, jobs=100_000)

    def ingest(self, turn: int) -> None:
        for kind in KINDS:
            for who in turned([OURS, ROUTE], turn):
                what = f"HTTP {kind}"
                self._add(what, who, ingest, self._server, who, kind, seconds=self._seconds)

    def pickup(self, turn: int) -> None:
        for who in turned([OURS, *(p for p in self._peers if p.name == "pgqueuer")], turn):
            told = self._try("pick-up", who, pickup, self._server, who, jobs=self._paced)
            for share in ("p50", "p99") if told else ():
                self._results.add(
                    f"pick-up {share}",
                    who.name,
                    ms=told[f"committed_{share}_ms"],
                    from_call_ms=told[f"began_{share}_ms"],
                )

    def durable(self, turn: int) -> None:
        for who in turned([OURS, *(p for p in self._peers if p.name == "dbos")], turn):
            self._add("steps", who, steps, self._server, who, jobs=self._jobs // 50)
        self._add(
            "resume after an approval", OURS, resume, self._server, decisions=self._paced // 2
        )

    def ledger(self, turn: int) -> None:
        names = list(VARIANTS)
        at = turn % len(names)
        for name in names[at:] + names[:at]:
            figures = self._try(
                "ledger", name, ledger, self._server, name, seconds=self._seconds
            )
            for what, who in VARIANTS[name][1] if figures else ():
                self._results.add(what, who, **figures)

    def pinned(self, turn: int) -> None:
        jobs = self._jobs
        beside: list[tuple[str, Callable[..., Any]]] = [
            ("drain, no snapshot", drain),
            ("drain, snapshot held", beside_snapshot),
            ("drain, 1,000,000 finished", beside_history),
        ]
        at = turn % len(beside)
        for what, measure in beside[at:] + beside[:at]:
            self._add(what, OURS, measure, self._server, OURS, jobs=jobs)
        told = self._try("buffers", OURS, pinned, self._server, OURS, jobs=jobs)
        if not told:
            return
        buffers = told["buffers"]
        sweeps = [buffers[what] for what in SWEEPS]
        buffers["sweep"] = tuple(map(sum, zip(*sweeps, strict=True)))
        for what in ("claim", "hint", "sweep"):
            first, last = buffers[what]
            self._results.add(
                f"buffers of a {what}, last tenth", OURS.name, growth=last / first
            )
        first, last = told["lease_sweep_ms"]
        self._results.notes.append(
            {
                "title": f"Under a held snapshot, round {turn + 1}",
                "text": "Buffers of one call in the first and in the last tenth of"
                f" {jobs:,} runs. Worst claim {told['worst_claim_ms']:.1f} ms;"
                f" {told['look_share']:.1%} of the time in looks from the start. The sweep of"
                f" leases, once a minute, takes {first:.1f} ms first and {last:.1f} ms last.",
                "head": ("call", "first tenth", "last tenth"),
                "rows": [
                    (what, *("" if value is None else f"{value:,.1f}" for value in pair))
                    for what, pair in buffers.items()
                ],
            }
        )

    def cost(self, _turn: int) -> None:
        self._add("accept, claim and finish", OURS, cost, self._server, jobs=COST_RUNS)

    def digest(self, _turn: int) -> None:
        for of in inputs():
            for version, decode in WAYS:
                what = f"{of}, {version} {decode}"
                told = self._try(what, OURS, digest, of, version, decode)
                for who, unit in ((OURS.name, "ms"), (PLAIN, "plain_ms")) if told else ():
                    self._results.add(what, who, ms=told[unit])

    def idle(self, turn: int) -> None:
        """In the first round only: it takes minutes, and does not swing."""
        for projects in (1, 100) if turn == 0 else ():
            what = f"idle, {projects} project{'s' * (projects > 1)}"
            told = self._try(
                what, OURS, idle, self._server, projects=projects, seconds=self._still
            )
            if not told:
                continue
            self._results.add(
                what, OURS.name, statements=told["statements"], purge=told["purge"]
            )
            if projects == 1:
                self._asking(told)
            self._results.notes.append(
                {
                    "title": f"What is asked when {what}",
                    "text": f"Over {self._still:.0f} s; a purge every ten minutes adds"
                    f" {told['purge']:.3f} a second.",
                    "head": ("a second", "statement"),
                    "rows": [(f"{rate:.2f}", f"`{query}`") for query, rate in told["said"]],
                }
            )

    def _asking(self, none: dict[str, Any]) -> None:
        """Ten thousand runs that wait for an approval, beside none."""
        asking = self._try(
            "idle, 10,000 ask",
            OURS,
            idle,
            self._server,
            projects=1,
            seconds=self._still,
            asking=10_000,
        )
        if asking:
            self._results.add(
                "idle, 10,000 ask",
                OURS.name,
                growth=asking["statements"] / none["statements"],
                reading=asking["buffers"] / none["buffers"],
            )

    def _add(
        self, what: str, who: Contestant, measure: Callable[..., Any], *args: Any, **told: Any
    ) -> None:
        if figures := self._try(what, who, measure, *args, **told):
            self._results.add(what, who.name, **figures)

    def _try(
        self,
        what: str,
        who: Contestant | str,
        measure: Callable[..., Any],
        *args: Any,
        **told: Any,
    ) -> dict[str, Any]:
        """What *measure* answers; nothing where it failed, which is told and kept."""
        name = who if isinstance(who, str) else who.name
        try:
            figures: dict[str, Any] = measure(*args, **told)
        except Exception as error:  # noqa: BLE001 - a peer's failure is a finding; go on
            print(f"  {what:28} {name:14} failed: {error}", flush=True)
            title = f"Failed: {what}, {name}"
            self._results.notes.append({"title": title, "text": str(error)[-500:]})
            return {}
        shown = next(figures[unit] for unit in TOLD if unit in figures)
        print(f"  {what:28} {name:14} {shown:10,.1f}", flush=True)
        return figures


def turned(all_: list[Contestant], turn: int) -> list[Contestant]:
    """Another one goes first in each round."""
    at = turn % len(all_)
    return all_[at:] + all_[:at]


def versions(peers: list[Contestant]) -> dict[str, str]:
    found = {"semel": metadata.version("semel"), "Python": platform.python_version()}
    found["psycopg"] = metadata.version("psycopg")
    lines = (HERE / "constraints.txt").read_text().splitlines()
    pinned_to = dict(line.split("==") for line in lines if "==" in line)
    names = [peer.name for peer in peers]
    found |= {name: pinned_to[name] for name in (*names, "fastapi") if name in pinned_to}
    for peer in peers:
        if peer.command[0].endswith("node"):
            package = {"pgboss": "pg-boss", "graphile": "graphile-worker"}[peer.name]
            manifest = HERE / "peers" / "node_modules" / package / "package.json"
            found[peer.name] = (
                manifest.read_text().partition('"version": "')[2].partition('"')[0]
            )
            node = subprocess.run(
                [peer.command[0], "--version"], capture_output=True, text=True, check=True
            )
            found["node"] = node.stdout.strip()
    return found


def machine() -> str:
    model = Path("/proc/cpuinfo").read_text().partition("model name\t: ")[2].partition("\n")[0]
    system = f"{platform.system()} {platform.release()}"
    return f"{os.cpu_count()} CPUs ({model or platform.machine()}), {system}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--peers", default=",".join(PEERS), help="some of %(default)s, or none")
    parser.add_argument("--parts", default=",".join(PARTS), help="some of %(default)s")
    parser.add_argument("--quick", action="store_true", help="a fifth of the work")
    parser.add_argument(
        "--write",
        action="store_true",
        help=f"write {DATA.name} and {PAGE.name}, as a whole run does without being told",
    )
    asked = parser.parse_args()
    peers = []
    for name in filter(None, asked.peers.split(",")):
        if name not in PEERS:
            parser.error(f"--peers {name}: know {', '.join(PEERS)}")
        if why := contestants.missing(PEERS[name]):
            print(f"skipped: {why}", flush=True)
        else:
            peers.append(PEERS[name])
    parts = asked.parts.split(",")
    if not VENV.exists() and "ingest" in parts:
        print(f"skipped: ingest, whose route wants {VENV}; `make bench` makes it", flush=True)
        parts.remove("ingest")
    with throwaway() as server:
        before = os.getloadavg()
        about = {
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "command": shlex.join(["python", "bench/run.py", *sys.argv[1:]]),
            "machine": machine(),
            "load": "",
            "settings": {**server.settings(), "worker slots of ours": contestants.SLOTS},
            "versions": versions(peers),
        }
        print(
            "\n".join(f"{name} = {value}" for name, value in about["settings"].items()),
            flush=True,
        )
        results = Results(about)
        bench = Bench(server, results, peers, asked.quick)
        if "pinned" in parts:
            remember(server, OURS)
        for turn in range(asked.rounds):
            for part in parts:
                print(f"round {turn + 1} of {asked.rounds}: {part}", flush=True)
                getattr(bench, part)(turn)
        about["load"] = (
            f"Load average before: {before[0]:.1f}, after: {os.getloadavg()[0]:.1f}."
        )
        results.about["load"] = about["load"]
    print(plain(HEAD, [verdict.cells for verdict in verdicts(results)]), flush=True)
    whole = asked.peers == ",".join(PEERS) and asked.parts == ",".join(PARTS)
    if asked.write or (whole and not asked.quick and asked.rounds >= ROUNDS):
        write(results, data=DATA, page=PAGE)
        print(f"written: {DATA}, {PAGE}")


if __name__ == "__main__":
    main()
