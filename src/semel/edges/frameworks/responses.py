"""
Responses of Starlette: read before they are sent, so that they are kept before that too.

A plain response has its body. A streamed one is read up to the limit and streamed on from what was
read; what is longer, or of a kind that cannot be read, is sent once and leaves a tombstone. The
response itself goes on to be sent, with its cookies and background tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
from starlette.responses import FileResponse, Response, StreamingResponse

from semel.edges.rest import answer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from semel.core.operations import Reply


async def body_of(response: Response, limit: int) -> bytes | None:
    """
    The body of *response*, which stays fit to be sent; None where it passes *limit* bytes.

    Raises:
        Exception: what a stream raises while it is read.
    """
    if isinstance(response, StreamingResponse):
        return await _read(response, limit)
    if isinstance(response, FileResponse):
        path = anyio.Path(response.path)
        found = await path.stat()
        response.set_stat_headers(found)
        return await path.read_bytes() if found.st_size <= limit else None
    body = getattr(response, "body", None)
    return None if body is None else bytes(body)


def lines_of(response: Response) -> list[tuple[str, str]]:
    """Its header lines."""
    return [(n.decode("latin-1"), v.decode("latin-1")) for n, v in response.raw_headers]


def mark(response: Response, attempts: int | None) -> None:
    """Say which execution *response* is of."""
    for name, value in answer.marks(attempts, replayed=False):
        response.headers[name] = value


def replied(reply: Reply, attempts: int | None, *, replayed: bool) -> Response:
    """*reply* as a response."""
    return made(
        reply.status, [*reply.headers, *answer.marks(attempts, replayed=replayed)], reply.body
    )


def made(status: int, lines: list[tuple[str, str]], body: bytes) -> Response:
    """A response of just these."""
    response = Response(body if answer.has_body(status) else None, status)
    raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in lines]
    if answer.has_body(status):
        raw.append((b"content-length", str(len(body)).encode()))
    response.raw_headers = raw
    return response


async def _read(response: StreamingResponse, limit: int) -> bytes | None:
    pieces: list[bytes] = []
    size = 0
    rest = aiter(response.body_iterator)
    async for piece in rest:
        pieces.append(
            piece.encode(response.charset) if isinstance(piece, str) else bytes(piece)
        )
        size += len(pieces[-1])
        if size > limit:
            response.body_iterator = _chained(pieces, rest)
            return None
    response.body_iterator = _chained(pieces, None)
    return b"".join(pieces)


async def _chained(pieces: list[bytes], rest: Any) -> AsyncIterator[Any]:
    for piece in pieces:
        yield piece
    if rest is not None:
        async for piece in rest:
            yield piece
