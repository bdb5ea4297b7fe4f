"""
Django's requests and responses, as the rules see them.

A form of several parts is read the way Django reads it, which keeps large files on disk; of any
other request the body is. A streamed response is read up to the limit and streamed on from what
was read.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from django.http import HttpResponse
from django.utils.encoding import escape_uri_path

from semel.core.form import FormPart
from semel.edges.rest.asked import Asked
from semel.edges.rest.input import media_type
from semel.errors import TooLarge

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from django.http import HttpRequest
    from django.urls import ResolverMatch


def asked(request: HttpRequest, limit: int) -> Asked:
    """
    The request, its body read.

    Raises:
        TooLarge: more than *limit* bytes.
        Exception: Django's own, of a body that it refuses or cannot read: it answers 400.
    """
    meta = request.META
    length = str(meta.get("CONTENT_LENGTH") or "0")
    if length.isdigit() and int(length[:20]) > limit:
        raise TooLarge(f"the body passes {limit} bytes")
    headers = [
        (name[5:].replace("_", "-").lower(), str(value))
        for name, value in meta.items()
        if name.startswith("HTTP_")
    ]
    media = str(meta.get("CONTENT_TYPE", ""))
    multipart = media_type(media) == "multipart/form-data"
    body = b"" if multipart else request.body
    if len(body) > limit:
        raise TooLarge(f"the body passes {limit} bytes")
    match = request.resolver_match
    return Asked(
        method=str(request.method),
        path=escape_uri_path(request.path),
        query=str(meta.get("QUERY_STRING", "")),
        headers=(*headers, ("content-type", media)),
        body=body,
        params={} if match is None else _params(match),
        parts=tuple(_parts(request)) if multipart else None,
    )


def _params(match: ResolverMatch) -> dict[str, str]:
    """What the route took out of the path, the unnamed by their places."""
    places = {str(place): value for place, value in enumerate(match.args)}
    return {name: str(value) for name, value in {**places, **match.kwargs}.items()}


def rewind(request: HttpRequest) -> None:
    """Let the view read the files of a form again."""
    if request.content_type == "multipart/form-data":
        for _, files in request.FILES.lists():
            for file in files:
                file.seek(0)


def body_of(response: Any, limit: int) -> bytes | None:
    """
    The body of *response*, which stays fit to be sent; None where it is not to be read.

    Raises:
        Exception: what a template or a stream raises.
    """
    _render(response)
    if not getattr(response, "streaming", False):
        return bytes(response.content)
    if response.is_async:
        return None
    pieces: list[bytes] = []
    rest = iter(response.streaming_content)
    for piece in rest:
        pieces.append(response.make_bytes(piece))
        if sum(map(len, pieces)) > limit:
            response.streaming_content = chain(pieces, rest)
            return None
    response.streaming_content = iter(pieces)
    return b"".join(pieces)


async def abody_of(response: Any, limit: int) -> bytes | None:
    """As `body_of`, for an async view, whose response may be streamed asynchronously."""
    if not getattr(response, "streaming", False) or not response.is_async:
        return body_of(response, limit)
    pieces: list[bytes] = []
    rest = aiter(response.streaming_content)
    async for piece in rest:
        pieces.append(response.make_bytes(piece))
        if sum(map(len, pieces)) > limit:
            response.streaming_content = _chained(pieces, rest)
            return None
    response.streaming_content = _chained(pieces, None)
    return b"".join(pieces)


def lines_of(response: Any) -> list[tuple[str, str]]:
    """Its header lines, its cookies last."""
    cookies = [("Set-Cookie", morsel.OutputString()) for morsel in response.cookies.values()]
    return [*response.items(), *cookies]


def made(status: int, lines: Sequence[tuple[str, str]], body: bytes) -> HttpResponse:
    """A response of just these; Django sends one line of each name, so they are joined."""
    response = HttpResponse(body, status=status)
    del response["Content-Type"]
    for name, value in lines:
        if name.lower() == "set-cookie":
            response.cookies.load(value)
        elif name in response:
            response[name] = f"{response[name]}, {value}"
        else:
            response[name] = value
    return response


def _render(response: Any) -> None:
    if callable(getattr(response, "render", None)) and not response.is_rendered:
        response.render()


def _parts(request: HttpRequest) -> Iterator[FormPart]:
    for name, values in request.POST.lists():
        for value in values:
            yield FormPart.of(name, value.encode("utf-8", "surrogatepass"))
    for name, files in request.FILES.lists():
        for file in files:
            yield FormPart.of(name, file.chunks(), filename=file.name, type=file.content_type)
    rewind(request)


async def _chained(pieces: list[bytes], rest: Any) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
    if rest is not None:
        async for piece in rest:
            yield piece
