"""
The query of a read: which parameters there are, and what each may be.

An unknown one is refused: a misspelt filter that is ignored shows the wrong runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args
from uuid import UUID

from starlette.responses import JSONResponse, Response

from semel.core.reads import PAGE, PAGE_MAX
from semel.errors import BadRequest

if TYPE_CHECKING:
    from starlette.requests import Request

    from semel.core.reads import Record

TEXT_CHARS_MAX = 200


class Query:
    """
    The parameters of one request.

    Raises:
        BadRequest: one is not in *allowed*, or is given twice.
    """

    def __init__(self, request: Request, *allowed: str) -> None:
        self._told = request.query_params
        for name in self._told:
            if name not in allowed:
                raise BadRequest(f"there is no parameter {name[:80]!r} here")
            if len(self._told.getlist(name)) > 1:
                raise BadRequest(f"{name} is given twice")

    def text(self, name: str, *, chars_max: int = TEXT_CHARS_MAX) -> str | None:
        """A short text, or None."""
        told = self._told.get(name)
        if told is not None and (len(told) > chars_max or not told.isprintable()):
            raise BadRequest(f"{name} is too long or not printable")
        return told

    def one_of(self, name: str, literal: Any) -> str | None:
        """One of the words of a Literal, or None."""
        told = self._told.get(name)
        if told is not None and told not in get_args(literal):
            raise BadRequest(f"{name} is one of {', '.join(get_args(literal))}")
        return told

    def uuid(self, name: str) -> UUID | None:
        """A UUID, or None."""
        told = self._told.get(name)
        try:
            return None if told is None else UUID(told)
        except ValueError:
            raise BadRequest(
                f"{name} is no UUID: take it from `next` of the page before"
            ) from None

    def limit(self) -> int:
        """How many records a page has."""
        told = self._told.get("limit", str(PAGE))
        if not (told.isascii() and told.isdecimal() and 1 <= int(told[:9]) <= PAGE_MAX):
            raise BadRequest(f"limit is a whole number from 1 to {PAGE_MAX}")
        return int(told)

    def page(self, name: str, records: list[Record], by: str) -> Response:
        """*records*, asked for with one to spare, as a page and the cursor of the next."""
        shown = records[: self.limit()]
        following = shown[-1][by] if len(records) > len(shown) else None
        return JSONResponse({name: shown, "next": following})
