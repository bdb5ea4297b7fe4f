"""
Source checks: what `semel doctor` says of the configured sources.

A line for each that is silent for too long, refuses or quarantines. It changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from semel.config.kinds import doubts
from semel.core import sources
from semel.db.execute import run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import psycopg

    from semel.config import Settings, Source

#: What became of requests is looked at as far back.
WINDOW = timedelta(hours=1)
#: Outcomes that leave no delivery, as the metrics call them.
UNKEPT = ("refused", "forbidden", "limited", "malformed", "failed")
#: Channels whose senders repeat nothing by themselves, or did not say that they do.
_ONCE = frozenset({"gitea", "github", "line", "discord"})


@dataclass(frozen=True, slots=True)
class Finding:
    """What is worth a line about one source."""

    status: Literal["note", "FAIL"]
    source: str
    detail: str
    remedy: str


def findings(conn: psycopg.Connection[Any], settings: Settings) -> Iterator[Finding]:
    """What the database knows of the configured sources and is worth a line."""
    counted = run(conn, sources.outcomes(WINDOW))
    silent = {(one.project, one.source): one for one in run(conn, sources.silences())}
    for name, source in settings.sources.items():
        if source.silent_after is not None and (one := silent.get(name)) is not None:
            yield from _silence(source, one)
        yield from _outcomes(source, counted.get(name, {}))


def doubtful(settings: Settings) -> Iterator[Finding]:
    """What the settings alone tell."""
    for source in settings.sources.values():
        if found := doubts(source):
            yield Finding(
                "note",
                source.name,
                f"{source.channel} is not known to tell the event type {', '.join(found)}",
                f"mend events of [sources.{source.name}], unless it is a new one",
            )
        if source.rate is not None and source.channel in _ONCE:
            yield Finding(
                "note",
                source.name,
                f"it has a rate, and {source.channel} does not send again what is answered 429",
                "what passes the rate is lost: leave it out, or raise it far above the usual",
            )


def _silence(source: Source, one: sources.Silence) -> Iterator[Finding]:
    if source.silent_after is None or one.age <= source.silent_after:
        return
    since = "the last event came" if one.ever else "no event ever came; it was announced"
    yield Finding(
        "FAIL",
        source.name,
        f"silent: {since} {_age(one.age)} ago",
        f"see what its sender says of its deliveries to /in/{source.project}/{source.name}",
    )


def _outcomes(source: Source, counts: Mapping[str, int]) -> Iterator[Finding]:
    heard = sum(count for outcome, count in counts.items() if outcome not in UNKEPT)
    told = [f"{counts[outcome]} {outcome}" for outcome in UNKEPT if counts.get(outcome)]
    if told:
        yield Finding(
            "note" if heard else "FAIL",
            source.name,
            f"in the last hour {', '.join(told)}, {heard} authentic",
            "refused: give the sender a secret of the source, and see both clocks; forbidden: its"
            " network to allow; the log says source.refused and why",
        )
    if counts.get("quarantined"):
        yield Finding(
            "FAIL" if counts["quarantined"] == heard else "note",
            source.name,
            f"in the last hour {counts['quarantined']} of {heard} quarantined",
            f"semel event list --verdict quarantined --source {source.name}",
        )


def _age(age: timedelta) -> str:
    minutes = age.total_seconds() / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.0f} h"  # noqa: PLR2004 - hours
