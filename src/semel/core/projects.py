"""
Projects: which there are, and which one an id is in.

For people at a command line, who have an id and no project. Everything a program does names its
project; nothing here is on the way of an event or a run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semel.core.call import Call

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID


def list_projects() -> Call[list[str]]:
    """Every project that something is of, or somebody works in, by name."""
    # One probe for each project, however much it holds.
    return Call(
        "with recursive e(p) as ("
        "  select min(project_id) from semel.events"
        "  union all select (select min(n.project_id) from semel.events as n"
        "    where n.project_id > e.p) from e where e.p is not null"
        "), r(p) as ("
        "  select min(project_id) from semel.runs"
        "  union all select (select min(n.project_id) from semel.runs as n"
        "    where n.project_id > r.p) from r where r.p is not null"
        "), d(p) as ("
        "  select min(project_id) from semel.deliveries"
        "  union all select (select min(n.project_id) from semel.deliveries as n"
        "    where n.project_id > d.p) from d where d.p is not null"
        "), o(p) as ("
        "  select min(project_id) from semel.operations"
        "  union all select (select min(n.project_id) from semel.operations as n"
        "    where n.project_id > o.p) from o where o.p is not null"
        "), j(p) as ("
        "  select min(project_id) from semel.journal"
        "  union all select (select min(n.project_id) from semel.journal as n"
        "    where n.project_id > j.p) from j where j.p is not null"
        ") select p from e where p is not null union select p from r where p is not null"
        " union select p from d where p is not null union select p from o where p is not null"
        " union select p from j where p is not null union select project_id from semel.consumers"
        " union select project_id from semel.schedules"
        " union select project_id from semel.sources union select project_id from semel.workers"
        " order by 1",
        (),
        lambda rows: [row[0] for row in rows],
    )


def project_of_run(run_id: UUID, projects: Sequence[str]) -> Call[str | None]:
    """The one of *projects* that has this run."""
    return Call(
        "select p from unnest(%s::text[]) as p where exists"
        " (select from semel.runs as r where r.project_id = p and r.run_id = %s)",
        (list(projects), run_id),
        _first,
    )


def project_of_approval(approval_id: UUID, projects: Sequence[str]) -> Call[str | None]:
    """The one of *projects* that has this approval."""
    return Call(
        "select p from unnest(%s::text[]) as p where exists"
        " (select from semel.approvals as a where a.project_id = p and a.approval_id = %s)",
        (list(projects), approval_id),
        _first,
    )


def project_of_arrival(told: UUID, projects: Sequence[str]) -> Call[str | None]:
    """The one of *projects* that has this event or this delivery."""
    return Call(
        "select p from unnest(%s::text[]) as p where exists"
        " (select from semel.events as e where e.project_id = p and e.event_id = %s)"
        " or exists (select from semel.delivery_find(p, %s))",
        (list(projects), told, told),
        _first,
    )


def events_of(project: str, source: str, provider_id: str) -> Call[list[dict[str, Any]]]:
    """What is remembered of one provider's id: for one that never came as a delivery."""
    return Call(
        "select to_jsonb(e) from semel.events as e"
        " where e.project_id = %s and e.source = %s and e.provider_event_id = %s",
        (project, source, provider_id),
        lambda rows: [row[0] for row in rows],
    )


def _first(rows: Sequence[Any]) -> str | None:
    return rows[0][0] if rows else None
