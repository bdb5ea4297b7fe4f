"""
Asked: a request as the rules see it, whatever framework received it.

Adapters make one after their own authentication has run; nothing here changes afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semel.core.form import FormPart


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request, its body read whole."""

    method: str
    path: str  # as the client wrote it, percent-encoded, without the query
    query: str = ""  # as the client wrote it, without the question mark
    #: Lower-case names; repeated lines repeated.
    headers: tuple[tuple[str, str], ...]
    body: bytes = b""
    #: What the route took out of the path.
    params: Mapping[str, str] = field(default_factory=dict)
    #: The parts of a form, where the framework has read them already; *body* is not looked at.
    parts: tuple[FormPart, ...] | None = None

    def header(self, name: str) -> str | None:
        """The first line called *name*, which is in lower case."""
        return next((value for header, value in self.headers if header == name), None)
