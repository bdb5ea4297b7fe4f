"""
Consent: what a tool asks of a person in the middle of a call, as an approval.

An approval says yes or no, and why. So a form is filled with what that says: its truths are true,
its defaults stand, and a text that is required is the reason. What needs more is not asked.

Source: Model Context Protocol 2026-07-28, elicitation, InputRequiredResult.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ELICIT = "elicitation/create"
TITLE_CHARS_MAX = 300


class Unaskable(Exception):
    """It wants what no approval can give; the text says what."""


def title(server: str, tool: str, requests: Mapping[str, Any]) -> str:
    """What is asked, in a line."""
    said = "; ".join(str(_params(each).get("message", "")) for each in requests.values())
    line = " ".join(f"{server}.{tool}: {said}".split())
    return line[:TITLE_CHARS_MAX]


def check(requests: Mapping[str, Any]) -> None:
    """
    Refuse what no approval could answer.

    Raises:
        Unaskable: with what it wants.
    """
    for each in requests.values():
        for name, field, required in _fields(each):
            if required and _filled(field, "a reason") is None:
                raise Unaskable(
                    f"it asks for {name!r} ({field.get('type', 'something')}),"
                    " which an approval cannot give"
                )


def inputs(requests: Mapping[str, Any], reason: str | None) -> dict[str, dict[str, Any]]:
    """
    The answers to *requests* of somebody who approves, by the requests' keys.

    Raises:
        Unaskable: a text is required, and the approval gave no reason.
    """
    return {key: _accepted(each, reason) for key, each in requests.items()}


def _accepted(request: Mapping[str, Any], reason: str | None) -> dict[str, Any]:
    if _params(request).get("mode") == "url":
        return {"action": "accept"}
    content = {}
    for name, field, required in _fields(request):
        value = _filled(field, reason)
        if value is None and required:
            raise Unaskable(f"it asks for {name!r}, and the approval gave no reason to fill in")
        if value is not None and (required or "default" in field or field["type"] == "boolean"):
            content[name] = value
    return {"action": "accept", "content": content}


def _fields(request: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    if request.get("method") != _ELICIT:
        raise Unaskable(f"it asks for {request.get('method')}, which no person can give")
    schema = _params(request).get("requestedSchema") or {}
    required = schema.get("required") or ()
    for name, field in (schema.get("properties") or {}).items():
        yield name, field, name in required


def _filled(field: Mapping[str, Any], reason: str | None) -> Any:
    """What stands in a field of somebody who agrees; None: nothing can."""
    if field.get("type") == "boolean":
        return True
    if "default" in field:
        return field["default"]
    free = field.get("type") == "string" and not field.keys() & {"enum", "oneOf", "format"}
    return reason or None if free else None


def _params(request: Mapping[str, Any]) -> Mapping[str, Any]:
    params = request.get("params")
    return params if isinstance(params, dict) else {}
