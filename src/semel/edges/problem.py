"""
Problems: every refusal over HTTP is one shape, application/problem+json.

Members: type, title, status, detail, code, retryable, remedy. The code is the one of
`semel.errors`; what no code stands for, such as a wrong method, carries E-REQUEST-001. What a
database says of itself - hosts, paths, names - is for the log: who asks here may be anybody.

Source: RFC 9457.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from semel.errors import DatabaseUnreachable, EmbeddedError, SchemaMismatch, Unauthenticated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.responses import Response

    from semel.errors import SemelError

#: When to come back, where coming back helps.
RETRY_AFTER_SECONDS = 5


def answer(
    error: SemelError,
    *,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
    more: Mapping[str, Any] | None = None,
) -> Response:
    """
    *error* as an answer.

    Args:
        error: Its class says title, code and remedy, its text the detail.
        status: Instead of the class's own.
        headers: To be sent with it.
        more: Members beside those that every problem has.
    """
    from starlette.responses import Response  # noqa: PLC0415 - not every framework here is it

    status = status or error.http_status
    own = {**members(error, status=status), **(more or {})}
    sent = dict(headers or {})
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        sent["Retry-After"] = str(RETRY_AFTER_SECONDS)
    if isinstance(error, Unauthenticated):
        sent["WWW-Authenticate"] = 'Bearer realm="semel"'
    return Response(
        json.dumps(own, ensure_ascii=False),
        status_code=status,
        headers=sent,
        media_type="application/problem+json",
    )


def members(error: SemelError, *, status: int | None = None) -> dict[str, Any]:
    """What every problem has, of *error*; *status* instead of its class's own."""
    return {
        "type": f"urn:semel:error:{error.code}",
        "title": error.title,
        "status": status or error.http_status,
        "detail": detail(error),
        "code": error.code,
        "retryable": error.retryable,
        "remedy": error.remedy,
    }


def detail(error: SemelError) -> str:
    """What *error* says to whoever asked, who may be anybody."""
    if isinstance(error, DatabaseUnreachable | SchemaMismatch | EmbeddedError):
        return (type(error).__doc__ or error.title).strip().partition("\n")[0]
    return str(error) or error.title
