"""
Tool checks: what `semel doctor` says of tools.

Whether a server can be reached is asked only where somebody wants to know (`--tools`), since that
starts the programs of stdio servers. It changes nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from semel.core.tools import unknown_calls
from semel.db.execute import run
from semel.edges.tools.made import made, reach
from semel.errors import SemelError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    from semel.config import Settings

#: Calls that ended longer ago are history.
RECENT = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Finding:
    """One line."""

    name: str
    status: Literal["ok", "note", "FAIL"]
    detail: str
    remedy: str = ""


def findings(conn: psycopg.Connection[Any]) -> Iterator[Finding]:
    """Calls of which nobody knows what became."""
    lost = run(conn, unknown_calls(RECENT))
    if lost:
        _, tool, run_id = lost[0]
        said = (
            f"{len(lost)} ended with an unknown outcome within a day, the last of {tool} for"
            f" run {run_id}"
        )
        remedy = "see what it did; a tool that honours the key is repeated: honours_key"
        yield Finding("tools", "note", said, remedy)
    else:
        yield Finding("tools", "ok", "no call's outcome is unknown within a day")


def configured(settings: Settings, *, ask: bool) -> Iterator[Finding]:
    """Each configured server; *ask*: connect to it."""
    for name, each in settings.tools.items():
        what = each.command or each.where_shown
        try:
            server = made(each)
            if ask:
                asyncio.run(reach(server))
        except SemelError as bad:
            remedy = f"start it, or mend [tools.{name}]"
            yield Finding(f"tools {name}", "FAIL", str(bad), remedy)
        else:
            said = "answers" if ask else "configured; --tools asks whether it answers"
            yield Finding(f"tools {name}", "ok", f"{what}: {said}")
