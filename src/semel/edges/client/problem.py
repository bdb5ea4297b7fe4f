"""
Problems: a server's refusal as an exception of the same tree that the server raised it from.

`except semel.errors.KeyConflict` catches -002 on either side of the wire, `except Problem` any
refusal, and `except httpx.HTTPStatusError` both: what httpx's users have already keeps working.

Source: RFC 9457.
"""

from __future__ import annotations

import functools
from typing import Any

import httpx

from semel import errors

MEDIA_TYPE = "application/problem+json"


class Problem(httpx.HTTPStatusError):
    """
    A refusal. `response` and `request` are httpx's.

    Attributes:
        code: Of `semel.errors`; None where the server names none.
        retryable: Whether the same request may succeed later.
        reason: A word for programs, such as `in_progress` or `input_mismatch`, or None.
        detail: A sentence for people, or None.
        problem: All members, as they came.
    """

    code: str | None
    retryable: bool

    def __init__(self, response: httpx.Response, problem: dict[str, Any]) -> None:
        self.problem = problem
        self.code = _text(problem, "code")
        self.retryable = problem.get("retryable") is True
        self.reason = _text(problem, "reason")
        self.detail = _text(problem, "detail")
        words = (self.code, _text(problem, "title"))
        said = " ".join(word for word in words if word) or f"HTTP {response.status_code}"
        said = f"{said}: {self.detail}" if self.detail else said
        super().__init__(said, request=response.request, response=response)

    def __reduce__(self) -> tuple[Any, ...]:
        return (raised, (self.response, self.problem))


def read(response: httpx.Response) -> dict[str, Any] | None:
    """The members of a problem, whose body has been read; None where it is none."""
    media = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not response.is_error or media != MEDIA_TYPE:
        return None
    try:
        members = response.json()
    except (ValueError, RecursionError):
        return None
    return members if isinstance(members, dict) else None


def raised(response: httpx.Response, problem: dict[str, Any]) -> Problem:
    """The exception for a problem: a Problem, and an error of its code too."""
    return _kind(_text(problem, "code"))(response, problem)


def _text(problem: dict[str, Any], name: str) -> str | None:
    value = problem.get(name)
    return value if isinstance(value, str) else None


@functools.cache
def _kinds() -> dict[str, type[errors.SemelError]]:
    """Every code, with the most particular error that has it."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    ours = [kind for kind in kinds if issubclass(kind, errors.SemelError)]
    return {kind.code: kind for kind in sorted(ours, key=lambda kind: len(kind.__mro__))}


@functools.lru_cache(maxsize=256)
def _kind(code: str | None) -> type[Problem]:
    ours = _kinds().get(code or "")
    return type(ours.__name__, (Problem, ours), {"__doc__": ours.__doc__}) if ours else Problem
