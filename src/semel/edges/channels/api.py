"""
The generic channel: any client that can send JSON and, to be safe, a key of its own.

The identity is (source, Idempotency-Key); the same key with another body is a conflict, never
answered as if it were accepted. Without a key every request is new. A text `correlation` in an
object says what the request belongs to, for an agent that joins; it stays in the input. A caller
reads its answers, so what is malformed is refused and nothing of it is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel.core.text import load
from semel.edges import idempotency_key
from semel.edges.channel import admit, bearer, headers_of, packing
from semel.errors import UnsupportedMedia
from semel.model import Offer

if TYPE_CHECKING:
    from semel.config import Source
    from semel.edges.channel import Reading, Request


def read(request: Request, source: Source) -> Reading:
    """
    The body as one offer; its JSON is the run's input.

    Raises:
        NotAuthentic: no `Authorization: Bearer` with a secret of the source.
        BadKey: the key is missing where required, or is no key.
        BadRequest: the body is no JSON that can be kept.
        UnsupportedMedia: it is packed.
    """
    admit(request, source, bearer)
    packed = packing(request)
    if packed is not None:
        raise UnsupportedMedia(
            f"a body with Content-Encoding {packed} is not read: send it plain"
        )
    key = idempotency_key.find(request.headers, required=source.require_key)
    told = load(request.body)
    correlation = told.get("correlation") if isinstance(told, dict) else None
    return [
        Offer(
            source=source.name,
            channel=source.channel,
            id=key,
            agent=source.agent,
            input=told,
            priority=source.priority,
            correlation=correlation if isinstance(correlation, str) else None,
            compare=key is not None,
            body=request.body,
            headers=headers_of(request, source),
        )
    ]
