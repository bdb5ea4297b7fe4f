"""
Ballot: what somebody decides of an approval, read from a request or refused.

A form or a JSON object with `decision`, and optionally `reason` and `digest`. Whether the vote
counts is not decided here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from semel.core.text import load_object
from semel.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semel.core.approvals import Decision

REASON_CHARS_MAX = 500
DIGEST_CHARS_MAX = 200

_MEMBERS = ("decision", "reason", "digest")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ballot:
    """What a person sent."""

    decision: Decision
    reason: str | None
    digest: str | None  # of what was seen; None decides on whatever is asked


def read(content_type: str, raw: bytes) -> Ballot:
    """
    The decision in the body of a request: a form, or a JSON object.

    Raises:
        BadRequest: it is neither, has an unknown or repeated member, or a value that is none.
    """
    told: dict[str, Any]
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/json":
        told = load_object(raw)
    elif kind in {"application/x-www-form-urlencoded", ""}:
        told = _form(raw)
    else:
        raise BadRequest("send application/x-www-form-urlencoded or application/json")
    return of(told)


def of(told: Mapping[str, Any]) -> Ballot:
    """
    The decision that these members say.

    Raises:
        BadRequest: one is unknown, or its value is none.
    """
    if unknown := sorted(set(told) - set(_MEMBERS)):
        raise BadRequest(f"unknown member {unknown[0][:80]!r}: there are {', '.join(_MEMBERS)}")
    decision = told.get("decision")
    if decision not in ("approve", "reject"):
        raise BadRequest("decision is approve or reject")
    return Ballot(
        decision=decision,
        reason=short("reason", told.get("reason"), REASON_CHARS_MAX),
        digest=short("digest", told.get("digest"), DIGEST_CHARS_MAX),
    )


def short(name: str, value: Any, chars_max: int) -> str | None:
    """
    *value* as a text of at most *chars_max* characters; None where there is none.

    Raises:
        BadRequest: it is none, or longer.
    """
    if value is None:
        return None
    if not isinstance(value, str) or "\0" in value:
        raise BadRequest(f"{name} is no text")
    said = value.replace("\r\n", "\n").strip()
    if len(said) > chars_max:
        raise BadRequest(f"{name} has {len(said)} characters, more than {chars_max}")
    return said or None


def _form(raw: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            raw.decode(), keep_blank_values=True, errors="strict", max_num_fields=10
        )
    except (UnicodeError, ValueError):
        raise BadRequest("the body is no form in UTF-8") from None
    if len({name for name, _ in pairs}) < len(pairs):
        raise BadRequest("a field of the form is there twice")
    return dict(pairs)
