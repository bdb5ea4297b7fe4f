"""
Doctor: checks in a column, and a remedy on each line that fails.

`ok` is well, `note` is worth knowing, `FAIL` needs a hand. It changes nothing, and looks at
every project.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import psycopg

from semel.core import drain, health, ledger_reads, reads
from semel.core.draining import idle_workers
from semel.core.projects import list_projects
from semel.db import migrate
from semel.db.execute import run, translated
from semel.edges.notifiers.notify import reach
from semel.errors import SchemaMismatch, SemelError
from semel.ops import (
    alert_checks,
    place,
    poll_checks,
    schedule_checks,
    source_checks,
    spool_checks,
    tool_checks,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from semel.config import Settings

    Status = Literal["ok", "note", "FAIL"]

VERSION_MIN = 150_000
CLOCK_DIFFERENCE_MAX = timedelta(seconds=5)
#: It comes to each project once a minute at least.
UPKEEP_SILENT_MAX = timedelta(seconds=150)
READY_WAIT_SECONDS_MAX = 300.0
#: A notification is sent at once, or its notifier is down.
UNSENT_MAX = timedelta(minutes=1)
#: A deploy is over by then.
DRAINED_MAX = timedelta(hours=1)
IDLE_MAX = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Check:
    """One line: what was looked at, what was found, what to do."""

    status: Status
    name: str
    detail: str
    remedy: str = ""

    def shown(self) -> dict[str, str]:
        """For JSON."""
        return {
            "check": self.name,
            "status": self.status,
            "detail": self.detail,
            "remedy": self.remedy,
        }


def examine(settings: Settings, *, tools: bool = False) -> list[Check]:
    """
    Every check that the state of things allows; a database away ends them early.

    Args:
        tools: Connect to the servers of tools, too.
    """
    found: list[Check] = []
    try:
        with (
            place.database(settings) as dsn,
            place.opened(settings, dsn, name="semel-doctor") as conn,
        ):
            # One by one: what was found before the database went away is still worth showing.
            found.extend(_database(conn, settings))
    except (SemelError, psycopg.Error) as error:
        ours = translated(error)
        if not isinstance(ours, SemelError):
            raise
        # The first line: a server's log may follow.
        found.append(Check("FAIL", "database", str(ours).partition("\n")[0], ours.remedy))
    asked = tool_checks.configured(settings, ask=tools)
    return [*found, *_settings(settings), *_tools(asked)]


def _database(conn: psycopg.Connection[Any], settings: Settings) -> Iterator[Check]:
    before = datetime.now(UTC)  # noqa: TID251 - this process's clock is what is compared
    facts = run(conn, health.server_facts())
    after = datetime.now(UTC)  # noqa: TID251 - as above
    if facts.version_number < VERSION_MIN:
        yield Check(
            "FAIL", "database", f"PostgreSQL {facts.version}", "upgrade it to 15 or later"
        )
    else:
        yield Check("ok", "database", f"PostgreSQL {facts.version}")
    yield _durability(facts)
    yield _clock(facts.now - (before + (after - before) / 2))
    try:
        migrate.check(conn)
    except SchemaMismatch as mismatch:
        yield Check("FAIL", "schema", str(mismatch), SchemaMismatch.remedy)
        return
    yield Check("ok", "schema", f"version {migrate.version()}, functions current")
    yield _owner(facts.owner)
    yield from _work(conn, settings)
    for one in schedule_checks.findings(conn, settings.worker.dead_after):
        yield Check(one.status, "schedules", one.detail, one.remedy)
    yield from _drained(conn, settings)
    yield from _people(conn)
    yield from _ledger(conn)
    yield from _tools(tool_checks.findings(conn))
    yield from _spool(spool_checks.rivals(conn))
    yield from _sources(source_checks.findings(conn, settings))
    yield from _sources(poll_checks.findings(conn, settings))
    yield from _sources(alert_checks.findings(conn, settings))
    idle = run(conn, health.idle_transactions(IDLE_MAX))
    if idle:
        pid, name, age = idle[0]
        detail = (
            f"{len(idle)} idle in a transaction, the longest for {_span(age)}: pid {pid} {name}"
        )
        yield Check("FAIL", "sessions", detail, f"end it: select pg_terminate_backend({pid})")
    else:
        yield Check("ok", "sessions", f"none idle in a transaction for {_span(IDLE_MAX)}")


def _drained(conn: psycopg.Connection[Any], settings: Settings) -> Iterator[Check]:
    within = settings.worker.dead_after
    if idle := run(conn, idle_workers(DRAINED_MAX, within=within)):
        yield Check(
            "note",
            "workers",
            f"{len(idle)} asked to drain over {_span(DRAINED_MAX)} ago, and alive: {idle[0]}",
            f"stop it, or have it go on: semel worker resume {idle[0]}",
        )


def _durability(facts: health.ServerFacts) -> Check:
    said = (
        f"fsync {'on' if facts.fsync else 'off'}, synchronous_commit {facts.synchronous_commit}"
    )
    if facts.fsync and facts.synchronous_commit != "off":
        return Check("ok", "durability", said)
    return Check(
        "FAIL",
        "durability",
        said,
        "a crash can undo what was answered: set fsync = on and synchronous_commit = on",
    )


def _clock(difference: timedelta) -> Check:
    millis = abs(difference.total_seconds()) * 1000
    said = f"this machine and the database differ by {millis:.0f} ms"
    if abs(difference) <= CLOCK_DIFFERENCE_MAX:
        return Check("ok", "clock", said)
    return Check(
        "note",
        "clock",
        said,
        "run a time service on both: only logs suffer, leases use the database's clock",
    )


def _owner(owner: str | None) -> Check:
    if owner == "semel_owner":
        return Check("ok", "owner", "the functions run as semel_owner")
    return Check(
        "note",
        "owner",
        f"the functions run as {owner}, who migrated and could not make the role semel_owner",
    )


def _work(conn: psycopg.Connection[Any], settings: Settings) -> Iterator[Check]:
    dead_after = settings.worker.dead_after
    # Upkeep sweeps other projects only when they need it, and its own always.
    yield _upkeep(conn)
    live = run(conn, health.live_workers(dead_after))
    if live:
        yield Check("ok", "workers", f"{live} alive")
    else:
        yield Check(
            "FAIL",
            "workers",
            f"none gave a sign of life for {_span(dead_after)}",
            "start one: semel worker APP",
        )
    waits = run(conn, reads.oldest_ready())
    agent, seconds = max(waits, key=lambda one: one[1], default=("", 0.0))
    if seconds > READY_WAIT_SECONDS_MAX:
        said = (
            f"the oldest ready run, of {agent}, waits for {_span(timedelta(seconds=seconds))}"
        )
        yield Check(
            "FAIL",
            "queue",
            said,
            "start more workers, or see what holds them: semel run list --status RUNNING",
        )
    else:
        yield Check(
            "ok",
            "queue",
            f"the oldest ready run waits for {_span(timedelta(seconds=seconds))}"
            if waits
            else "empty",
        )
    unserved = run(conn, health.unserved_agents(dead_after))
    if unserved:
        named = ", ".join(
            f"{agent}{' version ' * bool(version)}{version} ({count})"
            for agent, version, count in unserved
        )
        yield Check(
            "FAIL",
            "agents",
            f"runs that no live worker knows: {named}",
            "start a worker whose APP has them, of the version named: semel agent list",
        )
    else:
        yield Check("ok", "agents", "every waiting run has a worker that knows it")


def _people(conn: psycopg.Connection[Any]) -> Iterator[Check]:
    """What waits for a person."""
    unsent = run(conn, health.unsent_approvals(UNSENT_MAX))
    if unsent:
        named = ", ".join(f"{project} ({count})" for project, count in unsent)
        said = f"open for {_span(UNSENT_MAX)} without a link sent to anybody: {named}"
        remedy = "see why: semel run list --kind notify; decide: semel approval list"
        yield Check("FAIL", "approvals", said, remedy)
    else:
        yield Check("ok", "approvals", "whoever was to be notified of one has a link")
    failed, held = run(conn, health.failed_undos()), run(conn, health.held_undos())
    if failed or held:
        parts = []
        if failed:
            parts.append(f"{len(failed)} failed, the last is run {failed[0][1]}")
        if held:
            parts.append(f"{len(held)} held, the last of run {held[0][1]}")
        remedy = "semel run show ID says what is not undone; then run retry, skip or compensate"
        yield Check("FAIL", "compensations", "; ".join(parts), remedy)
    else:
        yield Check("ok", "compensations", "none failed, none held")


def _ledger(conn: psycopg.Connection[Any]) -> Iterator[Check]:
    counted = run(conn, drain.drain_count())
    stuck = [(c.project, c.atomic + c.recorded - c.held) for c in counted]
    named = ", ".join(f"{project} ({count})" for project, count in stuck if count)
    held = sum(count.held for count in counted)
    if named:
        said = f"operations are PROCESSING and nobody executes them: {named}"
        yield Check("FAIL", "ledger", said, "judge them: semel reconcile list")
    else:
        yield Check("ok", "ledger", f"no outcome is unknown; {held} recorded go on")
    if run(conn, health.results_open()):
        yield Check(
            "note",
            "results",
            "every program's role may read what operations answered",
            "revoke select (reply_body) on semel.operation from semel_client, public",
        )
    else:
        readable = run(conn, ledger_reads.results_readable())
        said = "what operations answered is granted apart; this role may"
        yield Check("ok", "results", f"{said}{'' if readable else ' not'} read it")


def _upkeep(conn: psycopg.Connection[Any]) -> Check:
    there = run(conn, list_projects())
    silent = [run(conn, health.upkeep_status(project)) for project in there]
    newest = min((age for age in silent if age is not None), default=None)
    if newest is not None and newest <= UPKEEP_SILENT_MAX:
        return Check("ok", "upkeep", f"came {_span(newest)} ago")
    if not there:
        return Check("ok", "upkeep", "no project to look after yet")
    said = "never came" if newest is None else f"came {_span(newest)} ago"
    return Check("FAIL", "upkeep", said, "is it running? start it: semel upkeep")


def _settings(settings: Settings) -> Iterator[Check]:
    if settings.file:
        yield Check("ok", "settings", f"from {settings.file} and the environment")
    else:
        yield Check(
            "note",
            "settings",
            f"no semel.toml in {Path.cwd()}: defaults and the environment",
            "where another process has one, name it: SEMEL_CONFIG=path/semel.toml",
        )
    if settings.testing:
        yield Check(
            "note",
            "testing",
            "SEMEL_TESTING is on here: test headers and stop points are honoured",
            "unset it in production",
        )
    else:
        yield Check(
            "ok", "testing", "off here; a running process has an environment of its own"
        )
    bare = sorted(source.name for source in settings.sources.values() if not source.secrets)
    if bare:
        said = (
            f"no secret: {', '.join(bare)}; who reaches {settings.server.host} may post there"
        )
        yield Check("note", "sources", said, 'add secrets = ["env:NAME"]')
    else:
        yield Check("ok", "sources", f"{len(settings.sources)} configured")
    yield from _sources(source_checks.doubtful(settings))
    yield from _spool(spool_checks.findings(settings))
    yield from _notifiers(settings)


def _tools(findings: Iterator[tool_checks.Finding]) -> Iterator[Check]:
    for one in findings:
        yield Check(one.status, one.name, one.detail, one.remedy)


def _spool(findings: Iterator[spool_checks.Finding]) -> Iterator[Check]:
    for one in findings:
        yield Check(one.status, "spool", one.detail, one.remedy)


def _sources(
    findings: Iterator[source_checks.Finding] | Iterator[alert_checks.Finding],
) -> Iterator[Check]:
    for one in findings:
        yield Check(one.status, f"source {one.source}", one.detail, one.remedy)


def _notifiers(settings: Settings) -> Iterator[Check]:
    for name, notifier in settings.notifiers.items():
        try:
            where = reach(notifier)
        except SemelError as bad:
            yield Check("FAIL", f"notifier {name}", str(bad), f"mend [notifiers.{name}]")
        else:
            yield Check("ok", f"notifier {name}", f"{notifier.kind}, leads to {where}")
    if settings.notifiers and settings.public_url is None:
        yield Check(
            "note",
            "links",
            f"they begin with {settings.links}, which only this machine can open",
            'say where people reach the server: public_url = "https://..."',
        )


def _span(age: timedelta) -> str:
    seconds = max(0.0, age.total_seconds())
    if seconds < 120:  # noqa: PLR2004 - two minutes
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min"
