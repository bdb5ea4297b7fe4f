"""`semel doctor` and `semel config`: is it well, and what does it work with."""

import json
from typing import Annotated

import typer

from semel.ops import doctor as checks
from semel.ops.cli import screen
from semel.ops.cli.command import Desk


def doctor(
    desk: Desk,
    tools: Annotated[
        bool, typer.Option("--tools", help="Connect to the servers of [tools], too.")
    ] = False,
) -> None:
    """Check database, clock, upkeep, workers, queue; a remedy on each failing line."""
    found = checks.examine(desk.serving, tools=tools)
    failed = [check for check in found if check.status == "FAIL"]
    if desk.json:
        screen.document({"ok": not failed, "checks": [check.shown() for check in found]})
    else:
        width = max(len(check.name) for check in found)
        for check in found:
            remedy = f"  -> {check.remedy}" if check.remedy else ""
            screen.text(
                f"{check.status.ljust(4)}  {check.name.ljust(width)}  {check.detail}{remedy}"
            )
    if failed:
        raise SystemExit(3 if failed[0].name == "database" else 1)


def config(desk: Desk) -> None:
    """The settings in force, secrets hidden."""
    shown = desk.settings.shown()
    desk.answer(shown, json.dumps(shown, indent=2, ensure_ascii=False))
