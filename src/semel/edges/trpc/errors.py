"""
Errors as tRPC names them: a key, its JSON-RPC number and its HTTP status.

An error that is Semel's own keeps its code, its reason and its problem members beside them, so that
one object satisfies a tRPC client and a reader of application/problem+json. What a client is told
of a fault that nobody foresaw is decided in `of`.

Source: @trpc/server 11.25.2, rpc/codes.ts and http/getHTTPStatusCode.ts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semel.edges import problem
from semel.edges.rest.refusal import RETRY_IN_FLIGHT_SECONDS, reason_of
from semel.errors import ResultNotKept, SemelError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Key to JSON-RPC number and HTTP status.
CODES: dict[str, tuple[int, int]] = {
    "PARSE_ERROR": (-32700, 400),
    "BAD_REQUEST": (-32600, 400),
    "UNAUTHORIZED": (-32001, 401),
    "PAYMENT_REQUIRED": (-32002, 402),
    "FORBIDDEN": (-32003, 403),
    "NOT_FOUND": (-32004, 404),
    "METHOD_NOT_SUPPORTED": (-32005, 405),
    "TIMEOUT": (-32008, 408),
    "CONFLICT": (-32009, 409),
    "PRECONDITION_FAILED": (-32012, 412),
    "PAYLOAD_TOO_LARGE": (-32013, 413),
    "UNSUPPORTED_MEDIA_TYPE": (-32015, 415),
    "UNPROCESSABLE_CONTENT": (-32022, 422),
    "PRECONDITION_REQUIRED": (-32028, 428),
    "TOO_MANY_REQUESTS": (-32029, 429),
    "CLIENT_CLOSED_REQUEST": (-32099, 499),
    "INTERNAL_SERVER_ERROR": (-32603, 500),
    "NOT_IMPLEMENTED": (-32603, 501),
    "BAD_GATEWAY": (-32603, 502),
    "SERVICE_UNAVAILABLE": (-32603, 503),
    "GATEWAY_TIMEOUT": (-32603, 504),
}
_BY_STATUS = {status: key for key, (_, status) in CODES.items() if key != "PARSE_ERROR"}
_CONFLICT = 409
_SILENT = frozenset({"asyncpg", "django", "psycopg", "psycopg_pool", "sqlalchemy"})
_UNPROCESSABLE = 422


class TRPCError(Exception):
    """
    Raise it in a procedure, a parser, an authorisation or a context to answer with *code*.

    Args:
        code: A key of tRPC's, such as "NOT_FOUND".
        message: For the caller; the key itself where there is none.
        data: Members of `error.data` beside code, httpStatus and path.

    Raises:
        ValueError: no such code.
    """

    def __init__(
        self, code: str, message: str | None = None, *, data: Mapping[str, Any] | None = None
    ) -> None:
        if code not in CODES:
            raise ValueError(f"{code!r} is no code of tRPC: there are {', '.join(CODES)}")
        super().__init__(message or code)
        self.code = code
        self.message = message or code
        self.data = dict(data or {})
        #: Members of the problem, where it is one of Semel's.
        self.problem: dict[str, Any] = {}
        #: Headers that the answer carries where this error is in it.
        self.headers: list[tuple[str, str]] = []

    @property
    def number(self) -> int:
        """Its JSON-RPC number."""
        return CODES[self.code][0]

    @property
    def status(self) -> int:
        """Its HTTP status."""
        return CODES[self.code][1]


def of(error: BaseException) -> TRPCError:
    """
    *error* as tRPC has it.

    What a procedure raises is told to the client, as tRPC does; not what a database says, whose
    words quote rows.
    """
    if isinstance(error, TRPCError):
        return error
    if isinstance(error, SemelError):
        return refused(error)
    silent = type(error).__module__.partition(".")[0] in _SILENT
    own = TRPCError("INTERNAL_SERVER_ERROR", None if silent else str(error) or None)
    own.__cause__ = error
    return own


def refused(error: SemelError) -> TRPCError:
    """What Semel refused. A mismatch is 409 here, not REST's 422: every conflict is CONFLICT."""
    conflict = error.http_status in {_CONFLICT, _UNPROCESSABLE}
    key = "CONFLICT" if conflict else _BY_STATUS.get(error.http_status, "BAD_REQUEST")
    told: dict[str, Any] = {"errorCode": error.code, "retryable": error.retryable}
    reason = reason_of(error)
    if reason is not None:
        told["reason"] = reason
    if isinstance(error, ResultNotKept):
        told["executed"] = True
    own = TRPCError(key, problem.detail(error), data=told)
    more: dict[str, Any] = {name: told[name] for name in ("reason", "executed") if name in told}
    own.problem = {**problem.members(error, status=own.status), **more}
    if conflict and error.retryable:
        own.headers = [("retry-after", str(RETRY_IN_FLIGHT_SECONDS))]
    elif own.code == "SERVICE_UNAVAILABLE":
        own.headers = [("retry-after", str(problem.RETRY_AFTER_SECONDS))]
    return own
