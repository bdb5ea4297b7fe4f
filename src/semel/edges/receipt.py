"""
Receipts: what a sender is answered once its events are accepted.

It is said of each event what became of it, in JSON and in the header `Semel-Verdict`, unless its
provider must hear something of its own. No answer has a member `method`, which Telegram would
carry out as a call.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.responses import Response

from semel.edges import problem
from semel.errors import Duplicate, KeyConflict, Quarantined

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from semel.edges.channel import Reply
    from semel.model import Accepted

_ENCODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_SEEN = ("duplicate", "late", "reminder", "redelivery")


class _Answer(Response):
    """JSON that is there already."""

    def __init__(self, told: object, *, status: int, verdicts: str) -> None:
        self.status_code = status
        self.background = None
        self.body = _ENCODE(told).encode()
        self.raw_headers = [
            (b"semel-verdict", verdicts.encode()),
            (b"content-length", str(len(self.body)).encode()),
            (b"content-type", b"application/json"),
        ]


def respond(
    accepted: Sequence[Accepted], *, is_read: bool = True, status: int | None = None
) -> Response:
    """
    The answer to a request whose events were accepted. It has no member `method`.

    Args:
        accepted: What became of them.
        is_read: The caller reads it and can mend what it sent, so a single conflict is 422. A
            provider would send the same again.
        status: Where the provider wants that; else 201 if any is new, 202 if it is spooled, or 200.
    """
    verdicts = ", ".join([one.verdict for one in accepted])
    if is_read and len(accepted) == 1 and accepted[0].verdict == "conflict":
        conflict = KeyConflict(f"{accepted[0].reason}; its run is {accepted[0].run_id}")
        return problem.answer(conflict, headers={"Semel-Verdict": verdicts})
    events = [_event(one) for one in accepted]
    return _Answer(
        events[0] if len(events) == 1 else {"events": events},
        status=status or _status(accepted),
        verdicts=verdicts,
    )


def replied(reply: Reply, verdicts: str) -> Response:
    """What *reply* says, with the *verdicts* of its events."""
    headers = {"Semel-Verdict": verdicts, **dict(reply.headers)}
    if reply.media is not None:
        headers["X-Content-Type-Options"] = "nosniff"
    return Response(reply.body, reply.status, headers=headers, media_type=reply.media)


def _status(accepted: Sequence[Accepted]) -> HTTPStatus:
    if any(one.verdict == "new" for one in accepted):
        return HTTPStatus.CREATED
    is_spooled = any(one.verdict == "spooled" for one in accepted)
    return HTTPStatus.ACCEPTED if is_spooled else HTTPStatus.OK


def _event(accepted: Accepted) -> dict[str, Any]:
    event: dict[str, Any] = {
        "run_id": str(accepted.run_id) if accepted.run_id else None,
        "event_id": str(accepted.event_id) if accepted.event_id else None,
        "duplicate": accepted.verdict in _SEEN,
    }
    if accepted.verdict in _SEEN:
        event["code"] = Duplicate.code
    elif accepted.verdict == "spooled":
        event["spooled"] = True
    elif accepted.verdict == "conflict":
        event["code"] = KeyConflict.code
    elif accepted.verdict == "quarantined":
        event |= {"code": Quarantined.code, "reason": accepted.reason}
    return event
