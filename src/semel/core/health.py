"""
Health: what `semel doctor` asks a database.

Only questions; the judgement is the doctor's. semel_client may ask them all; other roles'
sessions are seen with pg_read_all_stats.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from semel.core.call import Call

if TYPE_CHECKING:
    from datetime import timedelta
    from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What the server says of itself."""

    version: str  # "18.6"
    version_number: int  # 180006
    now: datetime
    fsync: bool
    synchronous_commit: str
    owner: str | None  # of the schema semel


def server_facts() -> Call[ServerFacts]:
    """The server, its clock, its durability, and whose our schema is."""
    return Call(
        "select current_setting('server_version'), current_setting('server_version_num')::int,"
        " clock_timestamp(), current_setting('fsync') = 'on',"
        " current_setting('synchronous_commit'),"
        " (select n.nspowner::regrole::text from pg_namespace as n where n.nspname = 'semel')",
        (),
        lambda rows: ServerFacts(
            version=rows[0][0].partition(" ")[0],
            version_number=rows[0][1],
            now=rows[0][2].astimezone(UTC),
            fsync=rows[0][3],
            synchronous_commit=rows[0][4],
            owner=rows[0][5],
        ),
    )


def upkeep_status(project: str) -> Call[timedelta | None]:
    """
    How long ago upkeep came to *project*; None if never.

    Source: sql/functions/upkeep.sql, upkeep_status.
    """
    return Call(
        "select silent from semel.upkeep_status(%s)",
        (project,),
        lambda rows: rows[0][0] if rows else None,
    )


def live_workers(within: timedelta) -> Call[int]:
    """How many workers gave a sign of life *within* this time and have not left."""
    return Call(
        "select count(distinct worker_id) from semel.workers"
        " where stopped_at is null and silent < %s and slots > 0",
        (within,),
        lambda rows: int(rows[0][0]),
    )


def unserved_agents(within: timedelta) -> Call[list[tuple[str, str, int]]]:
    """
    Agents that have claimable or delayed runs and no live worker, as (agent, version, runs).

    A version is that of the code that began the runs, which alone goes on with them; '' is for
    those that no version began.
    """
    return Call(
        "select g.agent, g.version, g.runs from ("
        "  select r.agent, r.version, count(*) as runs from semel.runs as r"
        "  where r.status in ('PENDING', 'RESUMED') group by r.agent, r.version) as g"
        " where not exists (select from semel.workers as w"
        "  where w.stopped_at is null and w.silent < %s and w.slots > 0"
        "  and case when g.version = '' then g.agent = any (w.agents)"
        "      else g.agent || '@' || g.version = any (w.versions) end)"
        " order by g.agent, g.version",
        (within,),
        lambda rows: [(agent, version, count) for agent, version, count in rows],
    )


def unsent_approvals(longer: timedelta) -> Call[list[tuple[str, int]]]:
    """
    Projects with open approvals that nobody has had a link to for *longer*, with how many.

    Only those for which a notification was started at all: others are decided by their id.
    """
    return Call(
        "select a.project_id, count(*) from semel.approvals as a"
        " where a.state = 'PENDING' and a.links is null"
        " and a.created_at < clock_timestamp() - %s and a.expires_at > clock_timestamp()"
        " and exists (select from semel.runs as r where r.project_id = a.project_id"
        "  and r.kind = 'notify' and r.parent_run_id = a.run_id"
        "  and r.run_id between semel.uuid_floor(a.created_at)"
        "   and semel.uuid_floor(a.created_at + interval '1 millisecond'))"
        " group by a.project_id order by a.project_id",
        (longer,),
        lambda rows: [(project, count) for project, count in rows],
    )


def failed_undos() -> Call[list[tuple[str, UUID]]]:
    """Compensations that failed for good, as (project, run that compensates), at most 100."""
    return Call(
        "select r.project_id, r.run_id from semel.runs as r"
        " where r.kind = 'undo' and r.status in ('FAILED', 'CANCELLED')"
        " order by r.finished_at desc limit 100",
        (),
        lambda rows: [(project, run_id) for project, run_id in rows],
    )


def held_undos() -> Call[list[tuple[str, UUID]]]:
    """Runs whose compensation waits for an operator, as (project, run), at most 100."""
    return Call(
        "select r.project_id, r.run_id from semel.runs as r where r.undo = 'held'"
        " order by r.finished_at desc limit 100",
        (),
        lambda rows: [(project, run_id) for project, run_id in rows],
    )


def results_open() -> Call[bool]:
    """Whether what operations answered may be read by everyone who may call our functions."""
    return Call(
        "select exists (select from pg_roles as r where r.rolname = 'semel_client'"
        "  and has_column_privilege(r.oid, 'semel.operation'::regclass, 'reply_body', 'select'))"
        " or has_column_privilege('public', 'semel.operation', 'reply_body', 'select')",
        (),
        lambda rows: bool(rows[0][0]),
    )


def idle_transactions(longer: timedelta) -> Call[list[tuple[int, str, timedelta]]]:
    """Sessions idle in a transaction for *longer*, as (pid, application, how long)."""
    return Call(
        "select pid, coalesce(application_name, ''), clock_timestamp() - state_change"
        " from pg_stat_activity where state like 'idle in transaction%%'"
        " and clock_timestamp() - state_change > %s order by 3 desc",
        (longer,),
        lambda rows: [(pid, name, age) for pid, name, age in rows],
    )
