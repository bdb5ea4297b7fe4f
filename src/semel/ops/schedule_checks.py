"""
Schedule checks: what `semel doctor` says of schedules, of all projects.

A line for each kind of trouble, with the first of those in it. It changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from semel.core.schedule_reads import schedule_figures, schedule_health
from semel.db.execute import run

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

#: Upkeep looks every few seconds.
OVERDUE_MAX = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Finding:
    """One line."""

    status: Literal["ok", "note", "FAIL"]
    detail: str
    remedy: str = ""


_TROUBLES: dict[str, tuple[Literal["note", "FAIL"], str, str]] = {
    "failing": (
        "FAIL",
        "their ticks cannot be worked out",
        "semel schedule list says why; mend it: semel schedule set NAME",
    ),
    "overdue": ("FAIL", "overdue, and nobody fires them", "is it running? semel upkeep"),
    "unserved": (
        "FAIL",
        "no live worker has the agent that they start",
        "start a worker whose APP has it, or name another: semel schedule set NAME --agent A",
    ),
    "withdrawn": (
        "note",
        "their program does not say them any more, so they rest",
        "forget them: semel schedule delete NAME",
    ),
}


def findings(conn: psycopg.Connection[Any], dead_after: timedelta) -> Iterator[Finding]:
    """What is in trouble, or one line that nothing is."""
    found = {
        one.kind: one for one in run(conn, schedule_health(OVERDUE_MAX, within=dead_after))
    }
    for kind, (status, said, remedy) in _TROUBLES.items():
        if one := found.get(kind):
            more = f" and {one.count - len(one.named)} more" * (one.count > len(one.named))
            yield Finding(status, f"{said}: {', '.join(one.named)}{more}", remedy)
    if not found:
        active = run(conn, schedule_figures()).active
        yield Finding(
            "ok", f"{active} active, each has its worker" if active else "none active"
        )
