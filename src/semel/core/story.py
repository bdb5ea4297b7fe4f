"""
Story: one run with all that happened to it, as one record.

Its members are those of the view `runs`, and below them attempts, events, deliveries, steps, waits,
signals, approvals, tools, children and the compensation, each oldest first. Nothing here changes
anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel.core.call import Call
from semel.core.reads import record

if TYPE_CHECKING:
    from typing import LiteralString
    from uuid import UUID

    from semel.core.reads import Record

_ATTEMPTS: LiteralString = (
    "(select coalesce(jsonb_agg(to_jsonb(a) - '{project_id,run_id}'::text[]"
    "  order by a.fence, a.claimed_at), '[]') from semel.attempts as a"
    "  where a.project_id = r.project_id and a.run_id = r.run_id)"
)

_EVENTS: LiteralString = (
    "(select coalesce(jsonb_agg(to_jsonb(e) - '{project_id,run_id}'::text[]"
    "  order by e.first_seen_at), '[]') from semel.run_events as e"
    "  where e.project_id = r.project_id and e.run_id = r.run_id)"
)

_DELIVERIES: LiteralString = (
    "(select coalesce(jsonb_agg(to_jsonb(d) - '{project_id,run_id}'::text[]"
    "  order by d.received_at, d.delivery_id), '[]') from ("
    "    select distinct e.event_id from semel.run_events as e"
    "    where e.project_id = r.project_id and e.run_id = r.run_id) as e"
    "  cross join lateral semel.deliveries_of(r.project_id, e.event_id) as f"
    "  join semel.deliveries as d on d.project_id = r.project_id"
    "    and d.received_at = f.received_at and d.delivery_id = f.delivery_id)"
)

_STEPS: LiteralString = (
    "(select coalesce(jsonb_agg(to_jsonb(s) - '{project_id,run_id}'::text[]"
    "  order by s.position), '[]') from semel.steps as s"
    "  where s.project_id = r.project_id and s.run_id = r.run_id)"
)

_WAITS: LiteralString = (
    "(select coalesce(jsonb_agg(to_jsonb(w) - '{project_id,run_id}'::text[]"
    "  order by w.created_at, w.step_key), '[]') from semel.waits as w"
    "  where w.project_id = r.project_id and w.run_id = r.run_id)"
)

_SIGNALS: LiteralString = (
    "(select coalesce(jsonb_agg(to_jsonb(s) - '{project_id,run_id}'::text[]"
    "  order by s.sent_at, s.signal_id), '[]') from semel.signals as s"
    "  where s.project_id = r.project_id and s.run_id = r.run_id)"
)

_APPROVALS: LiteralString = (
    "(select coalesce(jsonb_agg(to_jsonb(a) - '{project_id,run_id}'::text[]"
    "  order by a.created_at, a.approval_id), '[]') from semel.approvals as a"
    "  where a.project_id = r.project_id and a.run_id = r.run_id)"
)

_TOOLS: LiteralString = (
    "(select coalesce(jsonb_agg(to_jsonb(t) - '{project_id,run_id}'::text[]"
    "  || jsonb_build_object('arguments', (select case when t.server = 'agents' then k.input"
    "      else k.input -> 'arguments' end from semel.runs as k"
    "    where k.project_id = t.project_id and k.run_id = t.call_id limit 1))"
    "  order by t.asked_at, t.step_key), '[]') from semel.tools as t"
    "  where t.project_id = r.project_id and t.run_id = r.run_id)"
)

# No index leads from a parent to its children. A child is named by the step that started it; a
# notification was made in the millisecond in which its approval was asked: its id begins with it.
# `offset 0` keeps the planner from looking through all of history for the parent instead.
_CHILDREN: LiteralString = (
    "(select coalesce(jsonb_agg(c.child order by c.run_id), '[]') from ("
    "  select distinct on (k.run_id) k.run_id, jsonb_build_object('run_id', k.run_id,"
    "    'agent', k.agent, 'kind', k.kind, 'status', k.status, 'attempt_count', k.attempt_count,"
    "    'failure_code', k.failure_code, 'failure_reason', k.failure_reason,"
    "    'recipient', case when k.kind = 'notify' then k.input ->> 'recipient' end,"
    "    'created_at', k.created_at, 'finished_at', k.finished_at) as child"
    "  from (select (s.content ->> 'run_id')::uuid as first, (s.content ->> 'run_id')::uuid as last"
    "      from semel.steps as s where s.project_id = r.project_id and s.run_id = r.run_id"
    "      and s.kind = 'spawn' and s.entry = 'result'"
    "    union all select t.call_id, t.call_id from semel.tools as t"
    "      where t.project_id = r.project_id and t.run_id = r.run_id"
    "    union all select semel.uuid_floor(a.created_at),"
    "      semel.uuid_floor(a.created_at + interval '1 millisecond')"
    "      from semel.approvals as a"
    "      where a.project_id = r.project_id and a.run_id = r.run_id) as x"
    "  cross join lateral (select k.run_id, k.agent, k.kind, k.status, k.attempt_count,"
    "      k.failure_code, k.failure_reason, k.input, k.created_at, k.finished_at, k.parent_run_id"
    "    from semel.runs as k where k.project_id = r.project_id"
    "    and k.run_id between x.first and x.last offset 0) as k where k.parent_run_id = r.run_id"
    "  order by k.run_id, k.finished_at desc nulls first) as c)"
)

#: What the run on the left of an undo run had promised to undo, and what became of each.
_PLAN: LiteralString = (
    "select coalesce(jsonb_agg(jsonb_build_object('step_key', p.step_key, 'undo', p.undo,"
    "  'arguments', p.arguments::jsonb, 'result', p.result::jsonb, 'finished', p.finished,"
    "  'undone', p.undone::jsonb, 'undone_at', (select s.recorded_at from semel.steps as s"
    "    where s.project_id = r.project_id and s.run_id = semel.undo_of(x.parent)"
    "    and s.step_key = p.step_key and s.entry = 'result')) order by p.n), '[]')"
    " from semel.undo_plan(r.project_id, x.parent)"
    "   with ordinality as p(step_key, undo, arguments, result, finished, undone, n)"
)

_COMPENSATION: LiteralString = (
    "(select jsonb_build_object('run_id', u.run_id, 'status', u.status,"  # noqa: S608 - literals
    "  'attempt_count', u.attempt_count, 'failure_code', u.failure_code,"
    "  'failure_reason', u.failure_reason, 'created_at', u.created_at,"
    "  'finished_at', u.finished_at, 'steps', (" + _PLAN + "))"
    " from (select r.run_id as parent) as x join semel.runs as u on u.project_id = r.project_id"
    "   and u.run_id = semel.undo_of(x.parent)"
    " order by u.finished_at desc nulls first limit 1)"
)

_UNDOES: LiteralString = (
    "(select case when r.kind = 'undo' then (" + _PLAN + ") end"  # noqa: S608 - literals
    " from (select r.parent_run_id as parent) as x)"
)


_SHOW: LiteralString = (
    "select to_jsonb(r) || jsonb_build_object('attempts', "  # noqa: S608 - literals
    + _ATTEMPTS
    + ", 'events', "
    + _EVENTS
    + ", 'deliveries', "
    + _DELIVERIES
    + ", 'steps', "
    + _STEPS
    + ", 'waits', "
    + _WAITS
    + ", 'signals', "
    + _SIGNALS
    + ", 'approvals', "
    + _APPROVALS
    + ", 'tools', "
    + _TOOLS
    + ", 'children', "
    + _CHILDREN
    + ", 'compensation', "
    + _COMPENSATION
    + ", 'undoes', "
    + _UNDOES
    + ") from semel.runs as r where r.project_id = %s and r.run_id = %s"
)


def show_run(project: str, run_id: UUID) -> Call[Record | None]:
    """
    One run with all that happened to it.

    *compensation* is the run that undoes this one, with each step to undo, newest first, and what
    became of it; null where there is none. *undoes* is the same list for a run that is one.
    """
    return Call(_SHOW, (project, run_id), record)


def saga_of(project: str, run_id: UUID) -> Call[UUID | None]:
    """The run whose steps are undone: *run_id*, or its parent where it undoes one; or None."""
    return Call(
        "select case when r.kind = 'undo' then r.parent_run_id else r.run_id end"
        " from semel.runs as r where r.project_id = %s and r.run_id = %s",
        (project, run_id),
        lambda rows: rows[0][0] if rows else None,
    )
