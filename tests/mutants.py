"""
Mutants: does the suite see it when a guard goes?

    python tests/mutants.py [--jobs 2] [NAME ...]

For each mutation of `tests/mutations.py` the mutated function is applied to a database of its own,
which the tests of tests/sql, tests/model and tests/races then take for their template, until the
first of them turns red. A mutant that makes them hang is ended after a while, and was seen too.
Exit code 1, and the names, when any mutant survives. NAME: a part of the names to run.

This file is also the plugin that tells those tests which template to take.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

from psycopg.conninfo import make_conninfo

from mutations import MUTATIONS, Mutation
from semel.db import embedded, migrate
from semel.db.pool import connect

ROOT = Path(__file__).parent.parent
#: In the order of their speed.
SUITE = [
    "tests/sql/test_alerts.py",
    "tests/sql/test_alert_policies.py",
    "tests/sql/test_alert_polls.py",
    "tests/sql/test_notifications.py",
    "tests/sql/test_runs.py",
    "tests/sql/test_rates.py",
    "tests/sql/test_keys.py",
    "tests/sql/test_starts.py",
    "tests/sql/test_sources.py",
    "tests/sql/test_transitions.py",
    "tests/sql/test_versions.py",
    "tests/sql/test_correlation.py",
    "tests/races/test_moving_runs.py",
    "tests/sql/test_contents.py",
    "tests/sql/test_spools.py",
    "tests/sql/test_polls.py",
    "tests/sql/test_retention.py",
    "tests/races/test_runs.py",
    "tests/races/test_flow.py",
    "tests/races/test_inbox.py",
    "tests/races/test_correlation.py",
    "tests/sql/test_guards.py",
    "tests/model/test_inbox_machine.py",
    "tests/model/test_run_machine.py",
    "tests/races/test_sweeps.py",
    "tests/races/test_partitions.py",
    "tests/races/test_unique_keys.py",
    "tests/races/test_inbox_interleavings.py",
    "tests/races/test_deadlocks.py",
    "tests/races/test_interleavings.py",
    "tests/sql/test_plans.py",
]
#: What sees most of a mutant of the inbox, or of a durable run, and goes first there.
INBOX = [path for path in SUITE if any(w in path for w in ("inbox", "alert", "notifications"))]
DURABLE = [
    "tests/sql/test_steps.py",
    "tests/sql/test_waits.py",
    "tests/sql/test_tools.py",
    "tests/sql/test_signals.py",
    "tests/sql/test_approvals.py",
    "tests/sql/test_approval_links.py",
    "tests/sql/test_children.py",
    "tests/sql/test_undo.py",
    "tests/sql/test_compensate.py",
    "tests/races/test_waits.py",
    "tests/races/test_decisions.py",
    "tests/races/test_durable_deadlocks.py",
    "tests/model/test_durable_machine.py",
]
JOURNAL = [
    "tests/sql/test_journal.py",
    "tests/sql/test_journal_consumers.py",
    "tests/sql/test_journal_operations.py",
    "tests/model/test_journal_machine.py",
]
LEDGER = [
    "tests/sql/test_operations.py",
    "tests/sql/test_operations_asked.py",
    "tests/sql/test_operations_recorded.py",
    "tests/sql/test_operations_recover.py",
    "tests/sql/test_operations_close.py",
    "tests/sql/test_shard_rules.py",
    "tests/races/test_operations.py",
    "tests/model/test_ledger_machine.py",
]
CLOCK = ["tests/sql/test_schedules.py"]
MANY = [
    "tests/sql/test_batches.py",
    "tests/races/test_batches.py",
    "tests/db/test_start_many.py",
    "tests/sql/test_debounce.py",
    "tests/sql/test_orders.py",
]
PEOPLE = [
    "tests/sql/test_reconcile.py",
    "tests/sql/test_operations_import.py",
    "tests/sql/test_operations_expire.py",
    "tests/sql/test_operations_read.py",
    "tests/sql/test_drain.py",
]
FIRST = {
    (
        "drain_",
        "reconcile_",
        "payload_",
        "holder_",
        "operation_import",
        "operation_expire",
        "operation_newest",
        "operation_of_key",
    ): PEOPLE,
    ("schedule_", "spec_", "tick_"): CLOCK,
    ("tool_",): ["tests/sql/test_tools.py"],
    (
        "batch_",
        "debounce_",
        "due_projects: batches",
        "run_beat: a drain",
        "run_beat: orders",
        "run_beat: slots",
        "run_debounce",
        "run_end: its batch",
        "run_prioritise",
        "run_retry: its batch",
        "worker_drain",
        "worker_slots",
    ): MANY,
    ("spool_",): ["tests/sql/test_spools.py"],
    ("poll_",): ["tests/sql/test_polls.py"],
    ("journal_",): JOURNAL,
    ("operation_", "reply_"): LEDGER,
    ("event_", "alert_", "notification_", "body_", "dedupe_", "fold_"): INBOX,
    ("step_", "key_", "wait_", "child_", "signal_", "approval_", "undo_"): DURABLE,
    (
        "run_park",
        "run_resume",
        "run_spawn",
        "run_lock",
        "run_compensate",
        "run_stopped",
    ): DURABLE,
}
TEMPLATE = "SEMEL_TEST_TEMPLATE"
#: No statement of a test takes that long; one of a mutant may wait for ever.
PATIENCE = {"statement_timeout": "60s", "idle_in_transaction_session_timeout": "120s"}
#: For the suite against one mutant, on a busy machine.
SECONDS_MAX = 1800


class Fate(NamedTuple):
    name: str
    killed: bool
    by: str  # the first red test
    seconds: float


def pytest_configure(config: Any) -> None:
    """As a plugin: the fixtures find the mutant's database made already."""
    if TEMPLATE in os.environ:
        import fix_database

        fix_database.TEMPLATE = os.environ[TEMPLATE]


def source(function: str) -> str:
    """The statement that makes *function*, as the schema has it."""
    head = re.compile(rf"create or replace function semel\.{function}\(.*?\n\$\$;", re.DOTALL)
    found = [match for part in migrate.parts() for match in head.findall(part.sql)]
    if len(found) != 1:
        raise LookupError(f"{len(found)} functions are called {function}")
    return str(found[0])


def mutate(mutation: Mutation) -> str:
    """The statement that makes the mutant; LookupError where the text has changed."""
    text = source(mutation.function)
    if (times := text.count(mutation.old)) != 1:
        raise LookupError(f"{mutation.function}: {mutation.old!r} is there {times} times")
    return text.replace(mutation.old, mutation.new)


def try_out(server: embedded.Server, home: Path, number: int, name: str | None) -> Fate:
    """Run the suite against one mutant, or none, until something turns red."""
    began = time.monotonic()
    database = f"mutant_{number}"
    with connect(server.dsn) as admin:
        admin.execute(f"create database {database}")
        with connect(make_conninfo(server.dsn, dbname=database)) as conn:
            migrate.migrate(conn)
            conn.execute("set role semel_owner")
            if name:
                conn.execute(mutate(MUTATIONS[name]))
        environ = {
            **os.environ,
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}",
            "SEMEL_TEST_HOME": str(home),
            "HYPOTHESIS_PROFILE": "mutants",
            TEMPLATE: database,
        }
        options = ["-x", "-q", "-p", "mutants", "-p", "no:randomly", "-p", "no:cacheprovider"]
        first = [
            path
            for beginnings, paths in FIRST.items()
            if (name or "").startswith(beginnings)
            for path in paths
        ]
        suite = dict.fromkeys(
            [*first, *SUITE, *DURABLE, *JOURNAL, *LEDGER, *PEOPLE, *CLOCK, *MANY]
        )
        code, out = within(SECONDS_MAX, [*options, *suite], environ)
        admin.execute(f"drop database {database} with (force)")
    red = (
        ["it hangs"]
        if code is None
        else re.findall(r"^(?:FAILED|ERROR) (\S+)", out, re.MULTILINE)
    )
    killed = code in {None, 1} and bool(red)
    said = red[0] if killed else out[-2000:] if code else "-"
    return Fate(name or "none", killed, said, time.monotonic() - began)


def within(
    seconds: float, options: Sequence[str], environ: dict[str, str]
) -> tuple[int | None, str]:
    """pytest's exit code and what it said; None for one that had to be ended."""
    with tempfile.TemporaryFile("w+") as out:
        running = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options],
            cwd=ROOT,
            env=environ,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
        code: int | None
        try:
            code = running.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)  # it and what it started
            running.wait()
            code = None
        out.seek(0)
        return code, out.read()


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Does the suite see it when a guard goes?")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("names", nargs="*", metavar="NAME")
    told = parser.parse_args(argv)
    chosen = [
        name for name in MUTATIONS if not told.names or any(part in name for part in told.names)
    ]
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        home = Path(folder)
        home.chmod(0o755)  # the server's account must reach it when we are root
        from fix_server import FAST

        with (
            embedded.use(home / "pg", settings=FAST | PATIENCE) as server,
            ThreadPoolExecutor(told.jobs) as pool,
        ):
            control = try_out(server, home, 0, None)
            if control.killed or control.by != "-":
                print(f"red without any mutation: {control.by}")
                return 2
            tries = [
                pool.submit(try_out, server, home, number, name)
                for number, name in enumerate(chosen, 1)
            ]
            fates = []
            for done in as_completed(tries):
                fate = done.result()
                fates.append(fate)
                word = "killed" if fate.killed else "SURVIVED"
                print(f"{word:9} {fate.seconds:5.1f} s  {fate.name:60} {fate.by}", flush=True)
        embedded.stop(home / "pg")
    alive = [fate.name for fate in fates if not fate.killed]
    print(f"{len(fates) - len(alive)} killed, {len(alive)} survived", *alive, sep="\n  ")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
