"""
Reads: what the views say, as JSON, for the HTTP API, the command line and the metrics.

A record has its view's columns as members; ids are strings, times are ISO 8601 in UTC. Lists
come newest first, a page at a time. Nothing here changes anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from semel.core.call import Call

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta
    from typing import LiteralString, TypeAlias
    from uuid import UUID

    from semel.model import Json

    Record: TypeAlias = dict[str, Json]

PAGE = 50
PAGE_MAX = 200

#: Members that are records of ours again, or lists of them.
_OURS = frozenset(
    (
        "approvals",
        "attempts",
        "children",
        "compensation",
        "deliveries",
        "events",
        "judgements",
        "links",
        "signals",
        "steps",
        "tools",
        "undoes",
        "votes",
        "waits",
    )
)


def list_runs(
    project: str,
    *,
    status: str | None = None,
    agent: str | None = None,
    kind: str | None = None,
    before: UUID | None = None,
    limit: int = PAGE,
) -> Call[list[Record]]:
    """
    At most *limit* runs by run_id, newest first, optionally of one status, agent or kind.

    *before* is the last run of the page before. Ask for one more than you show to learn
    whether another page follows.
    """
    return Call(
        "select to_jsonb(r) from semel.runs as r"
        " where r.project_id = %s and (%s::uuid is null or r.run_id < %s)"
        " and (%s::text is null or r.status = %s) and (%s::text is null or r.agent = %s)"
        " and (%s::text is null or r.kind = %s)"
        " order by r.run_id desc limit %s",
        (project, before, before, status, status, agent, agent, kind, kind, limit),
        records,
    )


def list_events(
    project: str,
    *,
    source: str | None = None,
    before: UUID | None = None,
    limit: int = PAGE,
) -> Call[list[Record]]:
    """Events by event_id, newest first; paged as `list_runs`."""
    return Call(
        "select to_jsonb(e) from semel.events as e"
        " where e.project_id = %s and (%s::uuid is null or e.event_id < %s)"
        " and (%s::text is null or e.source = %s)"
        " order by e.event_id desc limit %s",
        (project, before, before, source, source, limit),
        records,
    )


def show_event(project: str, event_id: UUID) -> Call[Record | None]:
    """One event with its deliveries, oldest first."""
    return Call(
        "select to_jsonb(e) || jsonb_build_object('deliveries',"
        " (select coalesce(jsonb_agg(to_jsonb(d) order by d.received_at, d.delivery_id), '[]')"
        "  from semel.deliveries_of(e.project_id, e.event_id) as f join semel.deliveries as d"
        "    on d.project_id = e.project_id"
        "    and d.received_at = f.received_at and d.delivery_id = f.delivery_id))"
        " from semel.events as e where e.project_id = %s and e.event_id = %s",
        (project, event_id),
        record,
    )


def explain_event(project: str, source: str, provider_id: str) -> Call[list[Record]]:
    """
    Every kept delivery of one provider's id, oldest first: what became of it, and why.

    *relation* is that of its event to its run: made, joined, resolved or superseded; null where
    one of them is gone.

    Also those of its earlier lives, whose memory has ended and which no row of `events` names any
    more. No index has what senders call their events, so this reads the project's deliveries
    through once: for an operator, not for a program's every request. At most 1000.
    """
    return Call(
        "with named as materialized ("
        "  select d.received_at, d.delivery_id, d.event_id, d.verdict from semel.deliveries as d"
        "  where d.project_id = %s and d.source = %s and d.provider_event_id = %s"
        "), lives as materialized ("
        "  select e.event_id from semel.events as e"
        "  where e.project_id = %s and e.dedupe_key = semel.event_key(%s, %s)"
        "  union select n.event_id from named as n where n.verdict = 'new'"
        "), wanted as materialized ("
        "  select n.received_at, n.delivery_id from named as n"
        # What arrived without a name of its own, such as a reminder, speaks of one of these.
        "  union select f.received_at, f.delivery_id from lives as l"
        "  cross join lateral semel.deliveries_of(%s, l.event_id) as f"
        ") select d.record from wanted as w cross join lateral ("
        "  select to_jsonb(d) || jsonb_build_object('relation', (select e.relation"
        "    from semel.run_events as e where e.project_id = d.project_id"
        "    and e.run_id = d.run_id and e.event_id = d.event_id limit 1)) as record"
        "  from semel.deliveries as d where d.project_id = %s"
        "  and d.received_at = w.received_at and d.delivery_id = w.delivery_id limit 1) as d"
        " order by w.received_at, w.delivery_id limit 1000",
        (project, source, provider_id, project, source, provider_id, project, project),
        records,
    )


def list_deliveries(
    project: str,
    *,
    verdict: str | None = None,
    source: str | None = None,
    before: UUID | None = None,
    limit: int = PAGE,
) -> Call[list[Record]]:
    """
    The latest deliveries, newest first; `verdict` finds the quarantined ones.

    *before* is the last delivery_id of the page before.
    """
    return Call(
        "select to_jsonb(d) from semel.deliveries as d where d.project_id = %s"
        " and (%s::uuid is null or (d.received_at, d.delivery_id) < ("
        "  select f.received_at, f.delivery_id from semel.delivery_find(%s, %s) as f))"
        " and (%s::text is null or d.verdict = %s) and (%s::text is null or d.source = %s)"
        " order by d.received_at desc, d.delivery_id desc limit %s",
        (project, before, project, before, verdict, verdict, source, source, limit),
        records,
    )


def show_delivery(project: str, delivery_id: UUID) -> Call[Record | None]:
    """One delivery, by its own id."""
    return Call(
        "select to_jsonb(d) from semel.delivery_find(%s, %s) as f join semel.deliveries as d"
        " on d.received_at = f.received_at and d.delivery_id = f.delivery_id"
        " where d.project_id = %s and d.delivery_id = %s",
        (project, delivery_id, project, delivery_id),
        record,
    )


@dataclass(frozen=True, slots=True)
class Work:
    """What a run is asked to do, and the event that made it."""

    agent: str
    input: Json
    event_id: UUID | None

    @property
    def what(self) -> tuple[str, Json]:
        """What a handler can tell runs apart by."""
        return self.agent, self.input


def work_of(project: str, run_id: UUID | None) -> Call[Work | None]:
    """The work of a run; None if it is not there."""
    return Call(
        "select r.agent, r.input, r.event_id from semel.runs as r"
        " where r.project_id = %s and r.run_id = %s",
        (project, run_id),
        lambda rows: Work(*rows[0]) if rows else None,
    )


# An approval whose time is over has EXPIRED, also before upkeep has come to write it down.
_APPROVALS: LiteralString = (
    "select to_jsonb(a) || jsonb_build_object('state', case when a.state = 'PENDING'"
    "    and a.expires_at <= c.now then 'EXPIRED' else a.state end,"
    "  'seconds_left', case when a.state = 'PENDING'"
    "    then greatest(0, extract(epoch from a.expires_at - c.now)) end)"
    " from (select clock_timestamp() as now) as c cross join semel.approvals as a"
)


def list_approvals(
    project: str,
    *,
    state: str | None = None,
    before: UUID | None = None,
    limit: int = PAGE,
) -> Call[list[Record]]:
    """
    Approvals with their votes and links, newest first, optionally of one state.

    *before* is the last approval_id of the page before.
    """
    return Call(
        _APPROVALS + " where a.project_id = %s"  # noqa: S608 - literals
        " and (%s::uuid is null or (a.created_at, a.approval_id) < ("
        "  select b.created_at, b.approval_id from semel.approvals as b"
        "  where b.project_id = %s and b.approval_id = %s))"
        " and (%s::text is null or case when a.state = 'PENDING' and a.expires_at <= c.now"
        "  then 'EXPIRED' else a.state end = %s)"
        " order by a.created_at desc, a.approval_id desc limit %s",
        (project, before, project, before, state, state, limit),
        records,
    )


def show_approval(project: str, approval_id: UUID) -> Call[Record | None]:
    """One approval with its votes and links."""
    return Call(
        _APPROVALS + " where a.project_id = %s and a.approval_id = %s",
        (project, approval_id),
        record,
    )


def agent_of(project: str, run_id: UUID) -> Call[str | None]:
    """Whose run it is; None if it is not there."""
    return Call(
        "select r.agent from semel.runs as r where r.project_id = %s and r.run_id = %s",
        (project, run_id),
        lambda rows: str(rows[0][0]) if rows else None,
    )


def list_agents(project: str, *, within: timedelta) -> Call[list[Record]]:
    """
    Agents that a worker has announced or that have live runs, by name.

    *waiting* and *running* count their live runs; max_running is the limit, null for none, and
    *rate* {claims, seconds, left}. *per_limit* is that of each key and *key_waiting* counts the
    runs that wait for theirs; *edits* names what an operator has set in place of the code.
    *versions* are those of the code that live workers have for it, null for none. *begun* counts
    the live runs of each version that began some. *unserved* counts, by version, those ready
    or delayed runs that no live worker will claim, '' being those that no version began; null
    where each has one. A worker lives that gave a sign of life *within* this time.
    """
    return Call(
        "with live as materialized ("
        "  select r.agent, r.version, count(*) as runs,"
        "   count(*) filter (where r.status in ('PENDING', 'RESUMED')) as waiting,"
        "   count(*) filter (where r.status = 'RUNNING') as running,"
        "   count(*) filter (where r.key_full) as key_waiting"
        "  from semel.runs as r where r.project_id = %s and r.status in"
        "   ('PENDING', 'RUNNING', 'WAITING_TOOL', 'WAITING_APPROVAL', 'RESUMED')"
        "  group by r.agent, r.version"
        # Workers serve every project, and beat in one.
        "), served as materialized ("
        "  select s.agent, '' as version from semel.workers as w"
        "   cross join unnest(w.agents) as s(agent)"
        "   where w.stopped_at is null and w.silent < %s and w.slots > 0"
        "  union select split_part(s.named, '@', 1), split_part(s.named, '@', 2)"
        "   from semel.workers as w cross join unnest(w.versions) as s(named)"
        "   where w.stopped_at is null and w.silent < %s and w.slots > 0"
        "), counted as ("
        "  select l.agent, sum(l.waiting)::int as waiting, sum(l.running)::int as running,"
        "   sum(l.key_waiting)::int as key_waiting,"
        "   jsonb_object_agg(l.version, l.runs) filter (where l.version <> '') as begun,"
        "   jsonb_object_agg(l.version, l.waiting) filter (where l.waiting > 0 and not exists"
        "    (select from served as s where s.agent = l.agent and s.version = l.version))"
        "   as unserved"
        "  from live as l group by l.agent"
        ") select jsonb_build_object('project_id', %s::text, 'agent', coalesce(a.agent, c.agent),"
        " 'waiting', coalesce(c.waiting, 0), 'running', coalesce(c.running, 0),"
        " 'max_running', a.max_running, 'max_attempts', a.max_attempts, 'executor', a.executor,"
        " 'rate', case when a.rate_claims is not null then jsonb_build_object("
        "   'claims', a.rate_claims, 'seconds', extract(epoch from a.rate_span),"
        "   'left', a.rate_left) end,"
        " 'per', a.key_path, 'per_limit', a.key_limit, 'key_waiting', coalesce(c.key_waiting, 0),"
        " 'edits', nullif(to_jsonb(a.edits), '[]'),"
        " 'joins', coalesce(a.joins, false),"
        " 'versions', (select jsonb_agg(s.version order by s.version) from served as s"
        "   where s.agent = coalesce(a.agent, c.agent) and s.version <> ''),"
        " 'begun', c.begun, 'unserved', c.unserved,"
        " 'paused_at', a.paused_at, 'seen_at', a.seen_at)"
        " from (select * from semel.agents as a where a.project_id = %s) as a"
        " full join counted as c on c.agent = a.agent"
        " order by coalesce(a.agent, c.agent)",
        (project, within, within, project, project),
        records,
    )


def watch_runs(
    project: str, known: Sequence[UUID], *, newest: int = PAGE_MAX
) -> Call[list[Record]]:
    """
    What may have changed of a project's runs, in no order, without input and result.

    That is the *newest* runs, the first thousand that run, and those *known*. A run may come
    more than once.
    """
    return Call(
        "with changed as ("
        "  (select r.* from semel.runs as r where r.project_id = %s"
        "   order by r.run_id desc limit %s)"
        "  union all (select r.* from semel.runs as r"
        "   where r.project_id = %s and r.status = 'RUNNING' and r.worker_id is not null"
        "   limit %s)"
        "  union all select r.* from semel.runs as r"
        "   where r.project_id = %s and r.run_id = any (%s::uuid[]))"
        " select to_jsonb(c) - '{input,result,saga_steps}'::text[] from changed as c",
        (project, newest, project, 5 * newest, project, list(known)),
        records,
    )


def list_workers(project: str) -> Call[list[Record]]:
    """Workers, the latest sign of life first. silent_seconds is by the database's clock."""
    return Call(
        "select to_jsonb(w) - 'silent'"
        "  || jsonb_build_object('silent_seconds', extract(epoch from w.silent))"
        " from semel.workers as w where w.project_id = %s"
        " order by w.beat_at desc, w.worker_id limit 1000",
        (project,),
        records,
    )


def count_runs(project: str) -> Call[list[Record]]:
    """How many runs each agent has in each state, finished ones included."""
    return Call(
        "select to_jsonb(c) from (select r.agent, r.status, count(*) as runs"
        " from semel.runs as r where r.project_id = %s"
        " group by r.agent, r.status order by r.agent, r.status) as c",
        (project,),
        records,
    )


def schema_version() -> Call[int]:
    """The number of the last table file that the database has."""
    return Call(
        "select max(left(m.name, 4)::int) from semel.migration as m where m.kind = 'tables'",
        (),
        lambda rows: int(rows[0][0]),
    )


def live_runs() -> Call[list[tuple[str, str, int]]]:
    """Live runs of all projects, as (agent, status, how many)."""
    return Call(
        "select r.agent, r.status, count(*) from semel.runs as r where r.status in"
        " ('PENDING', 'RUNNING', 'WAITING_TOOL', 'WAITING_APPROVAL', 'RESUMED')"
        " group by r.agent, r.status",
        (),
        lambda rows: [(agent, status, runs) for agent, status, runs in rows],
    )


def oldest_ready() -> Call[list[tuple[str, float]]]:
    """For each agent with a claimable run in any project: (agent, seconds it waits)."""
    return Call(
        "select r.agent,"
        " greatest(0, extract(epoch from clock_timestamp() - min(r.ready_at)))::float8"
        " from semel.runs as r where r.ready_at is not null group by r.agent",
        (),
        lambda rows: [(agent, seconds) for agent, seconds in rows],
    )


def records(rows: Sequence[Any]) -> list[Record]:
    """Rows of one JSON column."""
    return [_utc(row[0]) for row in rows]


def record(rows: Sequence[Any]) -> Record | None:
    """The one row, if there is one."""
    return _utc(rows[0][0]) if rows else None


def _utc(record: dict[str, Any]) -> Record:
    """*record* with its own times in UTC; what users put into input and result is theirs."""
    for name, value in record.items():
        if isinstance(value, str) and (name == "at" or name.endswith(("_at", "_until"))):
            at = datetime.fromisoformat(value).astimezone(UTC)
            record[name] = at.isoformat().replace("+00:00", "Z")
        elif name in _OURS and isinstance(value, list):
            record[name] = [_utc(each) for each in value]
        elif name in _OURS and isinstance(value, dict):
            record[name] = _utc(value)
    return record
