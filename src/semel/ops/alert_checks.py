"""
Alert checks: whether each poll of an Alertmanager is answered, and whose alerts went stale.

The doctor shows what is found here; nothing is changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from semel.core import alert_polls
from semel.db.execute import run

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    from semel.config import Settings, Source
    from semel.core.alert_polls import Poll

#: So many intervals, and so much more, may pass between two polls.
POLLS_MAX = 3
LATE_MAX = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of the doctor's about a source."""

    status: Literal["ok", "note", "FAIL"]
    source: str
    detail: str
    remedy: str = ""


def findings(conn: psycopg.Connection[Any], settings: Settings) -> Iterator[Finding]:
    """One for each source that polls, and one for each that has stale alerts."""
    polls = {(poll.project, poll.source): poll for poll in run(conn, alert_polls.list_polls())}
    for name, source in settings.sources.items():
        if source.reconcile is not None:
            yield _poll(source, polls.get(name))
    for stale_source, state, count in run(conn, alert_polls.alerts_by_state()):
        if state == "stale":
            yield Finding(
                "note",
                stale_source,
                f"{count} alerts were open until nobody had spoken of them for stale_after",
                "does Alertmanager still send here? reconcile = in its settings would ask it",
            )


def _poll(source: Source, poll: Poll | None) -> Finding:
    settings = source.reconcile
    if settings is None:
        raise ValueError(f"source {source.name} has no reconcile")
    where = settings.at.origin
    if poll is None:
        said = f"nobody has polled {where} yet"
        return Finding("FAIL", source.name, said, "is it running? start it: semel serve")
    if poll.fault is not None:
        mend = f"mend [sources.{source.name}] reconcile, or what it leads to"
        return Finding("FAIL", source.name, f"poll: {poll.fault}", mend)
    late = settings.every * POLLS_MAX + LATE_MAX
    if poll.silent is None or poll.silent > late.total_seconds():
        said = f"{where} was not polled for {poll.silent or 0:.0f} s"
        return Finding("FAIL", source.name, said, "is it running? start it: semel serve")
    return Finding(
        "ok",
        source.name,
        f"{where} was polled {poll.silent:.0f} s ago, {poll.firing} fire there; it made good"
        f" {poll.found} firings and {poll.ended} resolutions",
    )
