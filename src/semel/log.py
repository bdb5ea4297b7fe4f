"""
Log: one line for each thing that happened, called `noun.past_verb`, with fields.

On a terminal a line is for people; anywhere else it is one JSON object. EVENTS declares every
name with its fields, and a test holds the sources to it. A line never carries a body, a token
or a whole key: say what it is about by an id.
"""

from __future__ import annotations

import json as json_text
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any, NamedTuple

_LOGGER = logging.getLogger("semel")

#: Bytes of one field's text; what is longer ends in an ellipsis.
FIELD_CHARS_MAX = 500


class Event(NamedTuple):
    """How bad it is, and the fields it may carry. `*` stands for any more."""

    level: int
    fields: tuple[str, ...]


_INFO, _WARNING, _ERROR = logging.INFO, logging.WARNING, logging.ERROR

#: Every event that our processes log.
EVENTS: dict[str, Event] = {
    "acceptor.retried": Event(_INFO, ("project", "sqlstate", "tried")),
    "alert_poll.failed": Event(_WARNING, ("project", "source", "reason")),
    "approval.decided": Event(
        _INFO, ("project", "approval", "run", "decision", "outcome", "state", "via")
    ),
    "batch.completed": Event(_INFO, ("project", "batch", "done", "failed", "cancelled")),
    "database.lost": Event(_WARNING, ("reason",)),
    "database.reached": Event(_INFO, ("schema_version",)),
    "operation.unwritten": Event(_ERROR, ("project", "operation", "reason")),
    "poller.failed": Event(_WARNING, ("project", "source", "state", "reason", "retry_s")),
    "poller.lost": Event(_WARNING, ("project", "source", "reason")),
    "poller.missed": Event(_WARNING, ("project", "source", "count")),
    "poller.started": Event(_INFO, ("project", "source", "bot", "fence", "next_id")),
    "poller.stood_back": Event(_WARNING, ("project", "source", "holder", "place")),
    "poller.stood_by": Event(_INFO, ("project", "source", "place")),
    "poller.stopped": Event(_INFO, ("project", "source")),
    "process.ended": Event(_WARNING, ("process", "reason", "restart_s")),
    "process.started": Event(_INFO, ("process", "pid")),
    "request.failed": Event(_ERROR, ("method", "route", "error", "sqlstate")),
    "run.crashed": Event(_WARNING, ("run", "reason")),
    "run.ended": Event(_INFO, ("run", "agent", "attempt", "fence", "outcome")),
    "run.logged": Event(_INFO, ("run", "attempt", "message", "*")),
    "operation.purged": Event(_INFO, ("project", "count")),
    "episode.staled": Event(_WARNING, ("project", "count")),
    "run.overdue": Event(_INFO, ("project", "run")),
    "run.lost": Event(_WARNING, ("run", "fence", "reason")),
    "run.reaped": Event(_WARNING, ("project", "run", "worker", "outcome")),
    "run.released": Event(_INFO, ("run",)),
    "run.stuck": Event(_ERROR, ("run", "agent")),
    "run.unwritten": Event(_ERROR, ("run", "reason")),
    "schedule.failed": Event(_ERROR, ("project", "schedule", "reason")),
    "schedule.fired": Event(_INFO, ("project", "schedule", "tick", "outcome", "run")),
    "schedule.missed": Event(_WARNING, ("project", "schedule", "ticks")),
    "schedule.said": Event(_INFO, ("project", "schedule", "program", "outcome")),
    "schedule.withdrawn": Event(_WARNING, ("project", "schedule", "program")),
    "schema.mismatched": Event(_ERROR, ("reason",)),
    "server.started": Event(_INFO, ("host", "port", "sources")),
    "server.stopped": Event(_INFO, ()),
    "source.truncated": Event(_WARNING, ("project", "source", "alerts")),
    "source.doubted": Event(_WARNING, ("project", "source", "event_type")),
    "source.refused": Event(_WARNING, ("project", "source", "reason", "peer")),
    "spool.cut": Event(_WARNING, ("file", "offset", "bytes")),
    "spool.damaged": Event(_ERROR, ("file", "offset", "bytes", "reason", "kept")),
    "spool.drained": Event(_INFO, ("project", "source")),
    "spool.found": Event(_INFO, ("project", "source", "records")),
    "spool.held": Event(_WARNING, ("project", "source", "records", "reason")),
    "spool.kept": Event(_WARNING, ("file", "reason")),
    "spool.refused": Event(_ERROR, ("project", "source", "reason")),
    "tool.answered": Event(_INFO, ("project", "call", "run", "outcome")),
    "upkeep.failed": Event(_WARNING, ("project", "reason")),
    "upkeep.started": Event(_INFO, ()),
    "upkeep.stopped": Event(_INFO, ()),
    "worker.deaf": Event(_WARNING, ("worker",)),
    "worker.draining": Event(_INFO, ("worker", "held")),
    "worker.failed_claim": Event(_WARNING, ("reason",)),
    "worker.failed_ending": Event(_WARNING, ("reason",)),
    "worker.failed_release": Event(_WARNING, ("reason",)),
    "worker.missed_beat": Event(_WARNING, ("reason",)),
    "worker.ordered": Event(_INFO, ("worker", "draining", "slots")),
    "worker.started": Event(_INFO, ("worker", "agents")),
    "worker.stopped": Event(_INFO, ("worker", "look_seconds", "claim_seconds_max")),
    "workers.unwoken": Event(_INFO, ("reason",)),
}


def event(name: str, /, **fields: Any) -> None:
    """
    Log that *name* happened.

    Args:
        name: One of EVENTS.
        fields: Those that EVENTS declares for it; anything else is shown by its str().
    """
    level = EVENTS[name].level if name in EVENTS else _WARNING
    _LOGGER.log(level, name, extra={"semel_fields": fields})


def setup(json: bool | None = None) -> None:
    """
    Send this process's log to stderr, our events and other libraries' warnings alike.

    Args:
        json: One JSON object a line; None: unless stderr is a terminal.
    """
    handler = logging.StreamHandler(sys.stderr)
    as_json = not sys.stderr.isatty() if json is None else json
    handler.setFormatter(JsonLines() if as_json else Lines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    _LOGGER.setLevel(logging.INFO)


class JsonLines(logging.Formatter):
    """For machines: at, level, event and its fields; message where it is no event of ours."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        line = {"at": _at(record), "level": record.levelname.lower(), **_said(record)}
        return json_text.dumps(line, ensure_ascii=False)


class Lines(logging.Formatter):
    """For people: time, level, event, key=value."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and a traceback below it where there is one."""
        said = _said(record)
        name = said.pop("event", None) or said.pop("message")
        trace = said.pop("traceback", "")
        pairs = "".join(f" {key}={_word(value)}" for key, value in said.items())
        below = f"\n{trace}" if trace else ""
        return f"{_at(record)[11:23]} {record.levelname:<7} {name}{pairs}{below}"


def _at(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _said(record: logging.LogRecord) -> dict[str, Any]:
    fields = getattr(record, "semel_fields", None)
    if fields is not None:
        said = {
            "event": record.getMessage(),
            **{key: _short(value) for key, value in fields.items()},
        }
    else:
        said = {"message": _short(record.getMessage()), "logger": record.name}
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        # The first line only: the rest of a database's message may quote a row.
        said["error"] = f"{type(error).__name__}: {_short(str(error).partition(chr(10))[0])}"
        said["traceback"] = "".join(traceback.format_tb(error.__traceback__))
    return said


def _short(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value)
    return text if len(text) <= FIELD_CHARS_MAX else text[: FIELD_CHARS_MAX - 1] + "…"


def _word(value: Any) -> str:
    text = str(value)
    plain = text.isprintable() and text and not set(text) & set(' "=')
    return text if plain else json_text.dumps(text, ensure_ascii=False)
