"""
Bulk: which runs an operator means by a filter, and their transitions, a page at a time.

One function here per function in sql/functions/bulk.sql, and the reads that find the pages. What a
state allows, SQL decides, for each run as for one alone. Nothing here opens a connection.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from semel.core.call import Call
from semel.core.transitions import DEAD_AFTER
from semel.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta
    from typing import LiteralString
    from uuid import UUID

#: Runs that one transaction moves.
PAGE = 100
#: How many of those that were not moved are told one by one.
TOLD = 10

LIVE = ("PENDING", "RUNNING", "WAITING_TOOL", "WAITING_APPROVAL", "RESUMED")

_WHERE: LiteralString = (
    " from semel.runs as r where r.project_id = %s and r.status = any (%s::text[])"
    " and (%s::text is null or r.agent = %s) and (%s::text is null or r.batch = %s)"
    " and r.created_at"
    " < coalesce(least(%s::timestamptz, clock_timestamp() - %s::interval), 'infinity')"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """
    The runs that are meant: each that has all of what is told.

    Raises:
        BadRequest: nothing is told, which would be every run.
    """

    statuses: tuple[str, ...]
    agent: str | None = None
    batch: str | None = None
    before: datetime | None = None  # created before
    ago: timedelta | None = None  # created so long ago
    narrowed: bool = False  # the statuses were told too, and are not those that may be moved

    def __post_init__(self) -> None:
        if not (self.narrowed or self.agent or self.batch or self.before or self.ago):
            raise BadRequest(
                "which runs? Name one, or at least one of agent, status, before and batch"
            )

    def args(
        self, project: str, before: datetime | None, ago: timedelta | None
    ) -> tuple[Any, ...]:
        """What stands in the place of the filter's marks."""
        agent, batch = self.agent, self.batch
        return (project, list(self.statuses), agent, agent, batch, batch, before, ago)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What became of one run of a page: won, new, already, refused or unknown."""

    run_id: UUID
    outcome: str
    status: str | None  # in which it was found


@dataclass(slots=True, kw_only=True)
class Tally:
    """What became of all."""

    matched: int
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[Moved] = field(
        default_factory=list
    )  # the first of those that were not moved

    def add(self, page: Sequence[Moved]) -> None:
        """Count a page."""
        for moved in page:
            self.outcomes[moved.outcome] += 1
            if moved.outcome in {"refused", "unknown"} and len(self.failures) < TOLD:
                self.failures.append(moved)

    @property
    def done(self) -> int:
        """How many were moved, or had been before."""
        return self.outcomes["won"] + self.outcomes["new"] + self.outcomes["already"]


def count_found(project: str, wanted: Filter) -> Call[tuple[int, datetime]]:
    """How many runs there are, and the moment before which they were created: not later ones."""
    return Call(
        "select count(*), least(clock_timestamp(), %s, clock_timestamp() - %s::interval)"
        + _WHERE,
        (wanted.before, wanted.ago, *wanted.args(project, wanted.before, wanted.ago)),
        lambda rows: (int(rows[0][0]), rows[0][1]),
    )


def find_page(
    project: str, wanted: Filter, *, before: datetime, after: UUID | None
) -> Call[list[UUID]]:
    """The next runs behind *after*, oldest first."""
    return Call(
        "select r.run_id" + _WHERE + " and (%s::uuid is null or r.run_id > %s)"
        " order by r.run_id limit %s",
        (*wanted.args(project, before, None), after, after, PAGE),
        lambda rows: [row[0] for row in rows],
    )


def run_cancel_page(
    project: str,
    runs: Sequence[UUID],
    *,
    reason: str = "cancelled by an operator",
    dead_after: timedelta = DEAD_AFTER,
    now: datetime | None = None,
) -> Call[list[Moved]]:
    """
    Cancel the runs of a page, in one transaction; each as by `transitions.run_cancel`.

    Source: sql/functions/bulk.sql, run_cancel_page.
    """
    return Call(
        "select run_id, outcome, status from semel.run_cancel_page(%s, %s::uuid[], %s, %s, %s)",
        (project, list(runs), reason, dead_after, now),
        _moved,
    )


def run_retry_page(
    project: str, runs: Sequence[UUID], *, now: datetime | None = None
) -> Call[list[Moved]]:
    """
    Retry the runs of a page, in one transaction; each as by `transitions.run_retry`.

    Source: sql/functions/bulk.sql, run_retry_page.
    """
    return Call(
        "select run_id, outcome, status from semel.run_retry_page(%s, %s::uuid[], %s)",
        (project, list(runs), now),
        _moved,
    )


def _moved(rows: Sequence[Any]) -> list[Moved]:
    return [Moved(run_id=run, outcome=outcome, status=status) for run, outcome, status in rows]
