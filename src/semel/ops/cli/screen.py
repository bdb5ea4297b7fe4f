"""
Screen: how a command says what it found.

Tables for eyes, aligned text for a pipe, JSON where it was asked for: one document, or one line
for each item of a list. What went wrong goes to stderr: the code and what, then what to do.
"""

from __future__ import annotations

import json as json_text
import re
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from semel.ops.cli.plot import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from semel.errors import SemelError


def document(value: Mapping[str, Any]) -> None:
    """One JSON document."""
    print(json_text.dumps(value, default=_json, ensure_ascii=False, indent=2))  # noqa: T201


def line(value: Mapping[str, Any]) -> None:
    """One JSON document on one line."""
    print(json_text.dumps(value, default=_json, ensure_ascii=False), flush=True)  # noqa: T201


def text(said: str = "") -> None:
    """Plain text as it is."""
    print(said, flush=True)  # noqa: T201


def table(items: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """A table: a row for each item, a column for each of its keys in *columns*."""
    heads = [_head(column) for column in columns]
    cells = [[word(item.get(column)) for column in columns] for item in items]
    if sys.stdout.isatty():
        shown = Table(box=None, header_style="bold", pad_edge=False)
        for n, head in enumerate(heads):
            shown.add_column(head, no_wrap=n == 0)  # an id is pasted whole
        for row in cells:
            shown.add_row(*(Text(cell) for cell in row))
        Console().print(shown)
        return
    widths = [max(len(row[n]) for row in [heads, *cells]) for n in range(len(columns))]
    for row in [heads, *cells]:
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        text("  ".join(padded).rstrip())


def _head(column: str) -> str:
    plain = column.removesuffix("_id").removesuffix("_at").replace("_count", "s")
    return plain.replace("_", " ").upper()


def pairs(item: Mapping[str, Any]) -> None:
    """Name and value, one below the other."""
    width = max(len(name) for name in item)
    for name, value in item.items():
        text(f"{name.replace('_', ' ').ljust(width)}  {word(value)}")


def refuse(error: SemelError, *, json: bool) -> None:
    """Say on stderr why nothing was done, and what to do."""
    complain(error.code, str(error), error.remedy, json=json)


def complain(code: str, detail: str, remedy: str, *, json: bool) -> None:
    """Say on stderr what went wrong, and what to do."""
    said = (
        json_text.dumps({"code": code, "detail": detail, "remedy": remedy}, ensure_ascii=False)
        if json
        else f"{code} {detail}\n{remedy}"
    )
    print(said, file=sys.stderr)  # noqa: T201


def word(value: Any) -> str:
    """One value as a person reads it."""
    match value:
        case None | "":
            return "-"
        case str() if re.fullmatch(r"\d{4}-\d\d-\d\dT[0-9:.]+Z", value):
            return f"{value[:10]} {value[11:19]}Z"
        case datetime():
            return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        case timedelta():
            return f"{value.total_seconds():.3g} s"
        case dict() | list() | bool():
            return json_text.dumps(value, default=_json, ensure_ascii=False)
        case _:
            return printable(str(value))  # titles and names come from outside


def _json(value: Any) -> Any:
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat()
        case timedelta():
            return value.total_seconds()
        case bytes():
            return value.hex()
        case _:
            return str(value)
