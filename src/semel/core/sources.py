"""
Sources: what became of their requests, and how long each is silent.

`source_observe` is the function of that name in sql/functions/sources.sql; the others read the
views `sources` and `source_outcomes`, over all projects. Nothing here opens a connection or reads
a clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semel.core.call import Call, nothing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """How long a source is silent."""

    project: str
    source: str
    ever: (
        bool  # an event came to it at some time; else it is silent since it was first announced
    )
    age: timedelta


def source_observe(project: str, counts: Mapping[tuple[str, str], int]) -> Call[None]:
    """
    Add *counts* of (source, outcome) to what is known of the sources of *project*.

    Source: sql/functions/sources.sql, source_observe.
    """
    return Call(
        "select semel.source_observe(%s, %s::text[], %s::text[], %s::bigint[])",
        (
            project,
            [source for source, _ in counts],
            [outcome for _, outcome in counts],
            list(counts.values()),
        ),
        nothing,
    )


def silences() -> Call[list[Silence]]:
    """How long each source that was ever announced is silent."""
    return Call(
        "select s.project_id, s.source, s.last_event_at is not null,"
        " greatest(clock_timestamp() - coalesce(s.last_event_at, s.since), interval '0')"
        " from semel.sources as s order by s.project_id, s.source",
        (),
        lambda rows: [
            Silence(project=project, source=source, ever=ever, age=age)
            for project, source, ever, age in rows
        ],
    )


def outcomes(within: timedelta) -> Call[dict[tuple[str, str], dict[str, int]]]:
    """
    By (project, source): how many requests or events had each outcome *within* this time.

    In steps of five minutes: what came up to five minutes earlier may count too.
    """
    return Call(
        "select o.project_id, o.source, o.outcome, sum(o.count)::bigint"
        " from semel.source_outcomes as o"
        " where o.slot_at > clock_timestamp() - %s - interval '5 minutes'"
        " group by 1, 2, 3 order by 1, 2, 3",
        (within,),
        _by_source,
    )


def _by_source(rows: Sequence[Any]) -> dict[tuple[str, str], dict[str, int]]:
    found: dict[tuple[str, str], dict[str, int]] = {}
    for project, source, outcome, count in rows:
        found.setdefault((project, source), {})[outcome] = count
    return found
