"""
Alert polls: what Alertmanager's API says, held against what is known of its alerts.

One function here per function in sql/functions/alert_polls.sql: same name, same arguments. The SQL
compares; what is found or gone is told to the fold like any notification.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from semel.core.call import Call, nothing
from semel.core.text import dump

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta
    from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """An alert as the API has it. Times are unix nanoseconds."""

    fingerprint: str
    starts_ns: int
    news: bool  # Alertmanager would notify of it: it is neither silenced nor inhibited


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What the API and the folds do not agree on."""

    what: Literal["found", "gone"]
    fingerprint: str
    starts_ns: int
    seen_ns: int | None = None  # gone: when somebody last spoke of it
    run_id: UUID | None = None  # gone: of its episode


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """How the poll of a source does."""

    project: str
    source: str
    held: bool  # a process does it
    silent: float | None  # seconds since the last answer; None: there was none
    fault: str | None  # of the last one
    firing: int
    found: int
    ended: int


def alert_poll_take(
    project: str, source: str, holder: UUID, lease: timedelta
) -> Call[datetime | None]:
    """
    Take or keep the poll of *source*: the moment, or None where another process has it.

    Source: sql/functions/alert_polls.sql, alert_poll_take.
    """
    return Call(
        "select semel.alert_poll_take(%s, %s, %s, %s)",
        (project, source, holder, lease),
        lambda rows: rows[0][0],
    )


def alert_poll_compare(
    project: str,
    source: str,
    alerts: Sequence[Standing],
    *,
    asked: datetime,
    settle: timedelta,
    gone_after: timedelta,
    began: str,
    now: datetime | None = None,
) -> Call[list[Difference]]:
    """
    Hold *alerts*, all that the API has, against the folds of *source*.

    Args:
        project: Whose source it is.
        source: Its name.
        alerts: In any state.
        asked: When it was asked, by `alert_poll_take`.
        settle: What began within it may still be told of.
        gone_after: So long an open alert must be absent.
        began: When that Alertmanager started, as it says.
        now: For tests; the database's clock if None.

    Source: sql/functions/alert_polls.sql, alert_poll_compare.
    """
    told = [
        {"fingerprint": one.fingerprint, "starts_ns": one.starts_ns, "news": one.news}
        for one in alerts
    ]

    def read(rows: Sequence[Any]) -> list[Difference]:
        return [
            Difference(
                what=what,
                fingerprint=fingerprint,
                starts_ns=starts,
                seen_ns=seen,
                run_id=run_id,
            )
            for what, fingerprint, starts, seen, run_id in rows
        ]

    return Call(
        "select what, fingerprint, starts_ns, seen_ns, run_id"
        " from semel.alert_poll_compare(%s, %s, %s, %s, %s, %s, %s, %s)",
        (project, source, dump(told), asked, settle, gone_after, began, now),
        read,
    )


def alert_poll_report(
    project: str,
    source: str,
    holder: UUID,
    fault: str | None,
    *,
    firing: int = 0,
    found: int = 0,
    ended: int = 0,
) -> Call[None]:
    """
    Say what a poll came to; *fault*: why it was none.

    Source: sql/functions/alert_polls.sql, alert_poll_report.
    """
    return Call(
        "select semel.alert_poll_report(%s, %s, %s, %s, %s, %s, %s)",
        (project, source, holder, fault, firing, found, ended),
        nothing,
    )


def alert_poll_leave(project: str, source: str, holder: UUID) -> Call[None]:
    """
    Let another process poll at once.

    Source: sql/functions/alert_polls.sql, alert_poll_leave.
    """
    return Call("select semel.alert_poll_leave(%s, %s, %s)", (project, source, holder), nothing)


def list_polls() -> Call[list[Poll]]:
    """How every poll does, over all projects."""
    return Call(
        "select project_id, source, held, extract(epoch from silent)::float8, fault, firing, found,"
        " ended from semel.alert_polls order by project_id, source",
        (),
        lambda rows: [
            Poll(
                project=project,
                source=source,
                held=held,
                silent=silent,
                fault=fault,
                firing=firing,
                found=found,
                ended=ended,
            )
            for project, source, held, silent, fault, firing, found, ended in rows
        ],
    )


def alerts_by_state() -> Call[list[tuple[str, str, int]]]:
    """How many alerts are firing, or were closed as stale, as (source, state, alerts)."""
    return Call(
        "select a.source, case when a.stale then 'stale' else a.status end, count(*)"
        " from semel.alerts as a where a.status = 'firing' or a.stale group by 1, 2 order by 1, 2",
        (),
        lambda rows: [(source, state, count) for source, state, count in rows],
    )
