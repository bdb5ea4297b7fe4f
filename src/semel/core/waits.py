"""
Waits: park a run until something is there, and say something to one.

One function here per function in sql/functions/{waits,signals}.sql. The SQL decides whether the
wait or the answer came first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from semel.core.call import Call
from semel.core.text import dump
from semel.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta
    from uuid import UUID

    from semel.core.tools import Ask

WaitKind = Literal["sleep", "retry", "signal", "child", "approval", "tool", "answer"]

SIGNAL_BYTES_MAX = 256 * 1024
NAME_BYTES_MAX = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What an approval asks."""

    id: UUID
    title: str
    action: Any  # JSON: what would be done
    digest: str  # of its canonical form
    need: int = 1
    approvers: tuple[str, ...] | None = None  # None: whoever has the role
    requester: str | None = None  # may not decide: four eyes
    notify: tuple[str, ...] = ()  # one notification for each


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """One thing that a run waits for."""

    key: str
    kind: WaitKind
    place: int | None = None  # of the step that waits
    dropped: bool = False  # the handler has given it up
    due: timedelta | None = None  # from now; over then, whatever comes
    name: str | None = None  # of the signal
    child: UUID | None = None
    question: Question | None = None
    ask: Ask | None = None  # of a tool


def run_park(
    project: str,
    worker: str,
    run_id: UUID,
    fence: int,
    waits: Sequence[Wait],
    *,
    now: datetime | None = None,
) -> Call[list[tuple[str, str, str | None]]]:
    """
    Park a run until one of *waits* is over.

    Returns:
        For each that is not dropped, in order, its key and: parked; ready, with the JSON of its
        result (the run is not parked then); pending, beside one that is ready; or lost.

    Source: sql/functions/waits.sql, run_park.
    """
    return Call(
        "select step_key, outcome, content from semel.run_park(%s, %s, %s, %s, %s, %s)",
        (project, worker, run_id, fence, dump([_told(wait) for wait in waits]), now),
        lambda rows: [(row[0], row[1], row[2]) for row in rows],
    )


def run_unpark(
    project: str, run_id: UUID, fence: int, *, now: datetime | None = None
) -> Call[str]:
    """
    Let a run go on that was parked with *fence* while its handler returned; won or lost.

    Source: sql/functions/waits.sql, run_unpark.
    """
    return Call(
        "select outcome from semel.run_unpark(%s, %s, %s, %s)",
        (project, run_id, fence, now),
        lambda rows: str(rows[0][0]),
    )


def _told(wait: Wait) -> dict[str, Any]:
    told: dict[str, Any] = {"key": wait.key, "kind": wait.kind, "name": wait.name}
    if wait.dropped:
        told["drop"] = True
    if wait.place is not None:
        told["place"] = wait.place
    if wait.due is not None:
        told["due"] = f"{wait.due.total_seconds():.6f} seconds"
    if wait.child is not None:
        told["child"] = str(wait.child)
    if wait.ask is not None:
        told["tool"] = wait.ask.told()
    if (asked := wait.question) is not None:
        told["approval"] = {
            "id": str(asked.id),
            "title": asked.title,
            "action": asked.action,
            "digest": asked.digest,
            "need": asked.need,
            "approvers": None if asked.approvers is None else list(asked.approvers),
            "requester": asked.requester,
            "notify": list(asked.notify),
        }
    return told


def signal_send(
    project: str,
    run_id: UUID,
    name: str,
    content: Any = None,
    *,
    key: str | None = None,
    sender: str = "",
    event_id: UUID | None = None,
    now: datetime | None = None,
) -> Call[tuple[str, str | None]]:
    """
    Say *content* to a live run under *name*.

    Args:
        name: 1 to 255 bytes; what the handler waits for.
        content: Any JSON of at most 256 KiB.
        key: The same signal again, by its key, is a duplicate.
        sender: Who says it, for the timeline.

    Returns:
        won, duplicate, refused (it has ended) or unknown; and the state it was found in.

    Raises:
        BadRequest: the name or the content is none.

    Source: sql/functions/signals.sql, signal_send.
    """
    if not 1 <= len(name.encode()) <= NAME_BYTES_MAX:
        raise BadRequest(f"a signal's name is 1 to {NAME_BYTES_MAX} bytes")
    try:
        text = dump(content)
    except (TypeError, ValueError, RecursionError) as bad:
        raise BadRequest(f"the content of signal {name} is no JSON: {bad}"[:300]) from None
    if len(text.encode()) > SIGNAL_BYTES_MAX:
        raise BadRequest(f"the content of signal {name} is above {SIGNAL_BYTES_MAX} bytes")
    return Call(
        "select outcome, status from semel.signal_send(%s, %s, %s, %s, %s, %s, %s, %s)",
        (project, run_id, name, text, key, sender, event_id, now),
        lambda rows: (rows[0][0], rows[0][1]),
    )
