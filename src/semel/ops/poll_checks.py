"""
Poll checks: what `semel doctor` says of the sources that poll.

It asks the database alone, so it can be asked anywhere: the pollers write down what the server said
to them. It changes nothing, and shows no token.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from semel.config.poll import bot
from semel.config.secret import dereference
from semel.core import polls
from semel.db.execute import run
from semel.errors import BadConfig
from semel.ops.source_checks import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    from semel.config import Settings, Source
    from semel.core.polls import Poll, State

CHANNEL = "telegram-poll"
#: A server may be away for so long before it is worth a hand.
FAILING_MAX = timedelta(minutes=2)
#: Ids that never came are told of for so long.
MISSING_MAX = timedelta(days=7)

_REMEDIES: dict[State, str] = {
    "webhook": (
        "a bot has a webhook or is polled: call deleteWebhook with its token, or give the source"
        " channel telegram"
    ),
    "conflict": "another program polls this bot: stop that, or make another bot for it",
    "refused": (
        "401 and 404: renew the token at BotFather and list it first in secrets; else see poll of"
        " the source"
    ),
    "throttled": "nothing: it is asked again when it said; other programs may use the token too",
    "failing": "see that api.telegram.org, or poll.api of the source, can be reached from there",
    "elsewhere": "one bot has one source: take it out of one project, or make another bot",
}


def findings(conn: psycopg.Connection[Any], settings: Settings) -> Iterator[Finding]:
    """What is worth a line about each source that polls."""
    for source in settings.sources.values():
        if source.channel == CHANNEL:
            yield from _of(source, conn)


def _of(source: Source, conn: psycopg.Connection[Any]) -> Iterator[Finding]:
    try:
        name = bot(source, dereference(source.secrets[0].reference, os.environ))
    except BadConfig:  # its token is not here; what it polled last is known
        name = None
    found = run(conn, polls.polls_of(name, source.project, source.name))
    mine = next((one for one in found if one.project == source.project), None)
    for other in found:
        if other.live and (other.project, other.source) != (source.project, source.name):
            yield Finding(
                "FAIL",
                source.name,
                f"bot {other.bot} is polled by source {other.source} of project {other.project}, on"
                f" {other.place}",
                _REMEDIES["elsewhere"],
            )
            return
    if mine is None:
        yield Finding(
            "FAIL",
            source.name,
            f"bot {name} was never polled" if name else "it never polled",
            "start what polls it, with these settings: semel serve",
        )
        return
    yield from _state(mine)
    yield from _missing(mine)


def _state(poll: Poll) -> Iterator[Finding]:
    if poll.state in _REMEDIES:
        bears = poll.state == "throttled" or (
            poll.state == "failing" and poll.for_ < FAILING_MAX
        )
        yield Finding(
            "note" if bears else "FAIL",
            poll.source,
            f"{poll.state} for {_span(poll.for_)}: {poll.said}",
            _REMEDIES[poll.state],
        )
    elif not poll.live:
        yield Finding(
            "FAIL",
            poll.source,
            f"nobody polls bot {poll.bot}; the last who did was on {poll.place}",
            "start what polls it: semel serve",
        )


def _missing(poll: Poll) -> Iterator[Finding]:
    if poll.missing_age is not None and poll.missing_age < MISSING_MAX:
        yield Finding(
            "note",
            poll.source,
            f"{poll.missing} updates never came, the last of them {poll.missing_from} to"
            f" {poll.missing_upto}, {_span(poll.missing_age)} ago",
            "Telegram drops what nobody fetches for 24 h; or another program took them",
        )


def _span(age: timedelta) -> str:
    minutes = max(age.total_seconds(), 0) / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.0f} h"  # noqa: PLR2004 - hours
