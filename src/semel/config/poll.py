"""
Poll settings: where a source that asks for its events asks, and how.

A bot is told apart by its id and its server, never by its token: a token is renewed, the bot and
its queue stay.

Source: Bot API, getUpdates; BotFather's tokens.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from semel.config.url import Url
from semel.config.values import known, read, table, within
from semel.errors import BadConfig

if TYPE_CHECKING:
    from collections.abc import Iterable

    from semel.config.settings import Source

TELEGRAM = "https://api.telegram.org"
TOKEN = re.compile(r"([0-9]{1,20}):[A-Za-z0-9_-]{1,100}")
_KIND = re.compile(r"[a-z][a-z_]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PollSettings:
    """How a source of channel telegram-poll asks."""

    source: str  # whose they are
    api: str = TELEGRAM  # what stands before /bot<token>/getUpdates
    allow_http: bool = False  # to another machine, where whoever listens may read the token
    timeout: timedelta = timedelta(seconds=50)  # how long the server may wait for something
    limit: int = 100  # updates of one answer
    allowed_updates: tuple[str, ...] = ()  # kinds; none: those that Telegram sends unasked
    lease: timedelta = timedelta(seconds=30)  # how long a poller that died keeps others away

    def __post_init__(self) -> None:
        at = f"[sources.{self.source}.poll]"
        url = Url.read(f"{at} api", self.api, http=True)
        if "?" in self.api:
            raise BadConfig(f"{at} api has a ?: write only what comes before /bot<token>/")
        if url.scheme == "http" and not self.allow_http and not _is_here(url.host):
            raise BadConfig(
                f"{at} api begins with http, and the bot's token is in each request: write"
                " https, or add allow_http = true where nobody else can listen"
            )
        within(f"{at} timeout", self.timeout, timedelta(seconds=1), timedelta(seconds=50))
        if self.timeout % timedelta(seconds=1):
            raise BadConfig(f"{at} timeout: Telegram takes whole seconds, as in 30s")
        within(f"{at} limit", self.limit, 1, 100)
        within(f"{at} lease", self.lease, timedelta(seconds=3), timedelta(minutes=10))
        for kind in self.allowed_updates:
            if not _KIND.fullmatch(kind):
                raise BadConfig(
                    f"{at} allowed_updates has {kind[:80]!r}: write names such as message or"
                    " callback_query"
                )

    @property
    def server(self) -> Url:
        """Where `/bot<token>/` is put."""
        return Url.read("api", self.api, http=True)


def read_poll(source: str, told: Any) -> PollSettings:
    """
    What *source*'s table `poll` says.

    Raises:
        BadConfig: naming the key and the mend.
    """
    at = f"[sources.{source}.poll]"
    types = {
        each.name: str(each.type) for each in fields(PollSettings) if each.name != "source"
    }
    known(at, table(at, told), types)
    values = {key: read(f"{at} {key}", types[key], value) for key, value in told.items()}
    return PollSettings(source=source, **values)


def bot(source: Source, token: str | None = None) -> str:
    """
    The bot that *source* polls, and its server: whose queue it is. No secret is in it.

    Args:
        token: Of the bot; as the settings have it if None.
    """
    settings = source.poll or PollSettings(source=source.name)
    number = (token or source.secrets[0].reveal()).partition(":")[0]
    server = settings.server
    return f"{number}@{server.origin}{server.target.rstrip('/')}"


def check_bots(sources: Iterable[Source]) -> None:
    """
    Refuse sources that could never poll: two of one bot, or one of two bots.

    Raises:
        BadConfig: naming them.
    """
    found: dict[str, Source] = {}
    for source in sources:
        if source.channel != "telegram-poll":
            continue
        at = f"[sources.{source.name}]"
        numbers = {secret.reveal().partition(":")[0] for secret in source.secrets}
        if len(numbers) > 1:
            raise BadConfig(
                f"{at} secrets are tokens of {len(numbers)} bots: a source is one bot; list two"
                " only while one bot's token is renewed"
            )
        other = found.setdefault(bot(source), source)
        if other is not source:
            raise BadConfig(
                f"{at} and [sources.{other.name}] are both of bot {bot(source)}: each update"
                " comes to one poller only; leave one of them out, or make another bot"
            )


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
