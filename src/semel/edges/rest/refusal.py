"""
Refusals: an error of the ledger as the answer of a REST request.

application/problem+json with code, `retryable` and, where the key is at fault, a `reason` for
machines. Only 409 with Retry-After, and 503, may be sent again as they are. The same reasons stand
in the errors of tRPC.

Source: RFC 9457; draft-ietf-httpapi-idempotency-key-header-07, 2.7.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from semel.edges import problem
from semel.errors import (
    BadKey,
    InFlight,
    KeyConflict,
    LegacyUnverifiable,
    NeedsReconcile,
    ResultNotKept,
    SemelError,
    Unauthenticated,
)

#: Seconds; what is in flight, or won a race, is usually over by then.
RETRY_IN_FLIGHT_SECONDS = 1
REASONS: dict[type[SemelError], str] = {
    BadKey: "key_malformed",
    InFlight: "in_progress",
    KeyConflict: "input_mismatch",
    LegacyUnverifiable: "legacy_unverifiable",
    NeedsReconcile: "unknown_outcome",
    ResultNotKept: "result_too_large",
}
MISSING = "key_missing"

Answer = tuple[int, list[tuple[str, str]], bytes]


class MissingKey(BadKey):
    """A request without a key where the route requires one."""


def answer(error: SemelError) -> Answer:
    """The status, header lines and body that *error* is told with."""
    told: dict[str, Any] = problem.members(error)
    reason = reason_of(error)
    if reason is not None:
        told["reason"] = reason
    if isinstance(error, ResultNotKept):
        told["executed"] = True
    lines = [("Content-Type", "application/problem+json")]
    if error.retryable and error.http_status == HTTPStatus.CONFLICT:
        lines.append(("Retry-After", str(RETRY_IN_FLIGHT_SECONDS)))
    elif error.http_status == HTTPStatus.SERVICE_UNAVAILABLE:
        lines.append(("Retry-After", str(problem.RETRY_AFTER_SECONDS)))
    elif isinstance(error, Unauthenticated):
        # Which scheme a program's users have is the program's to say, and 401 must name one.
        lines.append(("WWW-Authenticate", "Bearer"))
    return error.http_status, lines, json.dumps(told, ensure_ascii=False).encode()


def reason_of(error: SemelError) -> str | None:
    """The word for machines that says why a request with a key was refused."""
    if isinstance(error, MissingKey):
        return MISSING
    return next((word for kind, word in REASONS.items() if isinstance(error, kind)), None)
