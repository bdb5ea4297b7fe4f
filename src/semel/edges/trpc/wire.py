"""
The wire: one HTTP request, read into the calls that are in it, or refused as a whole.

    GET  /a.b?input=J            a query            POST /a.b        its body is the input
    GET  /a.b,c?batch=1&input=M  M maps the index   POST /a.b,c?batch=1    of a call to its input

Version 11 and 10 agree on requests that their clients send, so one router serves both; `Wire`
says how a request that neither sends is refused, as the one or the other does.

Source: @trpc/server 11.25.2, http/contentType.ts and resolveResponse.ts; 10.45.4,
http/resolveHTTPResponse.ts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from semel.edges.rest.input import media_type
from semel.edges.trpc.errors import TRPCError
from semel.edges.trpc.inputs import Inputs, Uploaded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semel.edges.trpc.context import Request
    from semel.edges.trpc.procedures import Procedure
    from semel.edges.trpc.transformer import Transformer

#: How the answer is written: at once, in lines as @trpc/client 11 reads them, or as 10 does.
Mode = Literal["whole", "jsonl", "lines"]
Version = Literal[10, 11]

_JSON, _FORM, _OCTETS = "application/json", "multipart/form-data", "application/octet-stream"
_METHODS = {"query": ("GET",), "mutation": ("POST",)}
_OVERRIDDEN = {"query": ("GET", "POST"), "mutation": ("POST",)}
_KIND_10 = {"GET": "query", "POST": "mutation"}
_TEN = 10
_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class Call:
    """One procedure to be called; None where there is none of that path."""

    index: int
    path: str
    procedure: Procedure | None


@dataclass(frozen=True, slots=True)
class Reading:
    """What a request asks for."""

    calls: list[Call]
    batch: bool
    mode: Mode
    inputs: Inputs

    @property
    def mutates(self) -> bool:
        """Whether a mutation is among the calls."""
        return any(
            call.procedure is not None and call.procedure.kind == "mutation"
            for call in self.calls
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """
    How requests are read.

    Args:
        version: Of the server that is imitated where the client's request is out of the way.
        batching: Whether a request may have several calls.
        batch_max: Calls of one batch.
        method_override: Whether a query may come by POST.
        separator: Also parts the path of a procedure in a URL; a dot always does.
    """

    version: Version = 11
    batching: bool = True
    batch_max: int = 100
    method_override: bool = False
    separator: str = "."

    def read(
        self,
        request: Request,
        body: bytes,
        procedures: Mapping[str, Procedure],
        transformer: Transformer,
    ) -> Reading:
        """
        The calls of *request*.

        Raises:
            TRPCError: nothing of it can be called.
        """
        media = self._media(request)
        batch = media == _JSON and self._is_batch(request)
        told = _decoded(request).replace(self.separator, ".")
        paths = told.split(",") if batch else [told]
        calls = [Call(index, path, procedures.get(path)) for index, path in enumerate(paths)]
        if self.version != _TEN:
            _one_kind(calls)
        if batch and not self.batching:
            raise TRPCError("BAD_REQUEST", "Batching is not enabled on the server")
        if len(paths) > self.batch_max:
            raise TRPCError("BAD_REQUEST", "Batch call exceeds maximum size")
        mode = _mode(request)
        if mode != "whole" and not batch:
            if mode == "jsonl":
                raise TRPCError(
                    "BAD_REQUEST",
                    "Streaming requests must be batched (you can do a batch of 1)",
                )
            mode = "whole"
        if self.version == _TEN and request.method not in _KIND_10:
            raise TRPCError(
                "METHOD_NOT_SUPPORTED", f"Unexpected request method {request.method}"
            )
        if media == _JSON:
            text = request.query.get("input") if request.method == "GET" else body
            malformed = "PARSE_ERROR" if self.version == _TEN else "BAD_REQUEST"
            inputs = Inputs(transformer, text, len(calls) if batch else None, malformed)
        else:
            inputs = Uploaded(request.headers["content-type"], body, form=media == _FORM)
        return Reading(calls, batch, mode, inputs)

    def check(self, reading: Reading) -> None:
        """Refuse inputs that are no JSON now, where version 10 does not wait for the calls."""
        if self.version == _TEN:
            reading.inputs.check()

    def procedure(self, call: Call, method: str) -> Procedure:
        """
        What *call* may call by *method*.

        Raises:
            TRPCError: NOT_FOUND or METHOD_NOT_SUPPORTED.
        """
        found, path = call.procedure, call.path
        methods = _OVERRIDDEN if self.method_override else _METHODS
        allowed = methods[found.kind if found else "query"]
        if found is not None and method in allowed:
            return found
        if self.version == _TEN:
            raise TRPCError("NOT_FOUND", f'No "{_KIND_10[method]}"-procedure on path "{path}"')
        if found is None:
            raise TRPCError("NOT_FOUND", f'No procedure found on path "{path}"')
        wrong = TRPCError(
            "METHOD_NOT_SUPPORTED",
            f'Unsupported {method}-request to {found.kind} procedure at path "{path}"',
        )
        wrong.headers = [("allow", ", ".join(allowed))]
        raise wrong

    def vary(self, mode: Mode) -> list[tuple[str, str]]:
        """What an answer depends on, for a cache."""
        if mode == "lines":
            return [("vary", "trpc-batch-mode")]
        return [("vary", "trpc-accept, accept")] if self.version != _TEN else []

    def _is_batch(self, request: Request) -> bool:
        told = request.query.get("batch", "")
        return told == "1" if self.version != _TEN else bool(told)

    def _media(self, request: Request) -> str:
        """The kind of input; version 10 takes everything for JSON, and so does a GET."""
        told = request.headers.get("content-type")
        media = media_type(told)
        if media in {_FORM, _OCTETS} and self.version != _TEN:
            if request.method != "POST":
                raise TRPCError(
                    "METHOD_NOT_SUPPORTED",
                    f"Only POST requests are supported for {media} requests",
                )
            return media
        if media == _JSON or request.method == "GET" or self.version == _TEN:
            return _JSON
        raise TRPCError(
            "UNSUPPORTED_MEDIA_TYPE",
            "Missing content-type header"
            if told is None
            else f'Unsupported content-type "{told[:200]}',
        )


def _mode(request: Request) -> Mode:
    headers = request.headers
    accepts = headers.get("trpc-accept")
    if accepts is None and any(
        each.strip() == "application/jsonl" for each in headers.get("accept", "").split(",")
    ):
        accepts = "application/jsonl"
    if accepts == "application/jsonl":
        return "jsonl"
    return "lines" if headers.get("trpc-batch-mode") == "stream" else "whole"


def _decoded(request: Request) -> str:
    """The path of the procedures; ASGI has decoded it, but says nothing of what it could not."""
    raw = request.scope.get("raw_path") or b""
    if _BAD_ESCAPE.search(raw) or "\N{REPLACEMENT CHARACTER}" in request.path:
        raise TRPCError("BAD_REQUEST", f'Invalid URL-encoding in path "{request.path[:200]}"')
    return request.path


def _one_kind(calls: list[Call]) -> None:
    kinds = list(dict.fromkeys(call.procedure.kind for call in calls if call.procedure))
    if len(kinds) > 1:
        raise TRPCError(
            "BAD_REQUEST", f"Cannot mix procedure types in call: {', '.join(kinds)}"
        )
