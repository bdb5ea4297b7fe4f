"""
Answers: what is kept of one, and what is sent when the request comes again.

Kept are the status, the body to the byte, and the headers that describe it or that the client acts
on; never a cookie by default, since it belongs to a session and not to the operation, and never
what the server makes anew for each message.

Source: RFC 9110; the marker is Stripe's `Idempotent-Replayed`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel.core.operations import Reply
from semel.db.stops import stop_here

if TYPE_CHECKING:
    from collections.abc import Iterable

    from semel.edges.rest.rules import Rules

#: Headers of an answer that are kept and sent again, in their order, repeats repeated.
KEPT = frozenset(
    {
        "content-disposition",
        "content-encoding",
        "content-language",
        "content-location",
        "content-type",
        "etag",
        "last-modified",
        "link",
        "location",
    }
)
#: Headers of one message or one connection.
NEVER_KEPT = frozenset(
    {
        "connection",
        "content-length",
        "date",
        "keep-alive",
        "proxy-authenticate",
        "server",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "www-authenticate",
    }
)
REPLAYED = "Idempotent-Replayed"
ATTEMPTS = "Idempotency-Attempts"


def kept(
    rules: Rules, status: int, headers: Iterable[tuple[str, str]], body: bytes
) -> tuple[Reply, bool]:
    """
    What the ledger keeps of an answer, and whether that is a tombstone.

    Args:
        headers: As they were sent; names in any case.
    """
    lines = [(name, value) for name, value in headers if name.lower() in rules.kept]
    gone = len(body) > rules.answer_bytes_max
    return Reply(status=status, headers=lines, body=b"" if gone else body), gone


def without_cookies(rules: Rules, lines: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """*lines* that a handler named itself: kept, but for cookies that no rule names."""
    return [
        line for line in lines if line[0].lower() != "set-cookie" or "set-cookie" in rules.kept
    ]


def marks(attempts: int | None, *, replayed: bool) -> list[tuple[str, str]]:
    """The header lines that tell the client which execution an answer is of; it goes out now."""
    stop_here("ledger.answer.before")
    lines = [(REPLAYED, "true")] if replayed else []
    return lines if attempts is None else [*lines, (ATTEMPTS, str(attempts))]


def replay(reply: Reply, attempts: int | None) -> tuple[int, list[tuple[str, str]], bytes]:
    """The status, header lines and body of *reply*, sent again."""
    return reply.status, [*reply.headers, *marks(attempts, replayed=True)], reply.body


def has_body(status: int) -> bool:
    """Whether a message of this status has a body, and so a length."""
    return status >= 200 and status not in {204, 304}  # noqa: PLR2004 - RFC 9110, 6.4.1
