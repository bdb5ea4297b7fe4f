"""
Notifiers: the ways to tell a person that an approval waits, as semel.toml names them.

A notifier's name is the name of a recipient. Its secrets are references that only the process
which sends looks up: `value` does, once, when that process starts.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from semel.config.secret import dereference
from semel.config.url import Url
from semel.config.values import known, matches, read, shown, table, within
from semel.errors import BadConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Kind = Literal["webhook", "telegram", "slack", "line"]
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
TTL_MAX = timedelta(days=366)

#: The keys that each kind heeds, besides those of all.
_HEEDED: dict[str, frozenset[str]] = {
    "webhook": frozenset({"url", "secret", "token"}),
    "telegram": frozenset({"token", "chat", "api"}),
    "slack": frozenset({"url", "token", "channel", "api"}),
    "line": frozenset({"token", "to", "api"}),
}
_OF_ALL = frozenset({"kind", "allow_private", "allow_http"})
#: What is a secret by itself is told by reference only. A URL of Slack's is one.
_SECRET = frozenset({"token", "secret"})
_REFERENCE = ("env:", "file:")


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifierSettings:
    """One configured way to reach somebody. Texts may be references, secrets must be."""

    name: str
    kind: Kind
    url: str | None = None  # webhook, slack: where to post
    token: str | None = None  # telegram, slack, line: the bot's; webhook: a bearer's
    secret: str | None = None  # webhook: signs as Standard Webhooks do
    chat: str | None = None  # telegram: a chat's id, or @name
    channel: str | None = None  # slack: a channel's or a person's id
    to: str | None = None  # line: the id of a person, group or room
    api: str | None = None  # a server of your own that speaks the provider's API
    allow_private: bool | tuple[str, ...] = False  # private addresses; or only these networks
    allow_http: bool = False  # in the clear

    def __post_init__(self) -> None:
        at = f"[notifiers.{self.name}]"
        matches(at, "name", self.name, NAME, "1 to 64 of A-Z, a-z, 0-9, _, . and -")
        for key in self.told:
            if key not in _HEEDED[self.kind]:
                raise BadConfig(
                    f"{at} {key} is no setting of kind {self.kind}: leave it out; there are"
                    f" {', '.join(sorted(_HEEDED[self.kind] | _OF_ALL))}"
                )
        for key in self._wanted():
            if getattr(self, key) is None:
                raise BadConfig(f"{at} has no {key}: add {key} = ...")
        if self.kind == "slack" and self.url and (self.token or self.channel or self.api):
            raise BadConfig(
                f"{at} has url and token: an incoming webhook needs url only, a bot token and"
                " channel"
            )
        for key in self.told:
            self._check(f"{at} {key}", key, getattr(self, key))
        self.networks  # noqa: B018 - refuses what is no network

    @property
    def told(self) -> list[str]:
        """The texts that it is told."""
        return [
            each.name
            for each in fields(self)
            if each.name not in {"name", "kind", "allow_private", "allow_http"}
            and getattr(self, each.name) is not None
        ]

    @property
    def references(self) -> list[str]:
        """Those of them that stand for something else."""
        values = [getattr(self, key) for key in self.told]
        return [value for value in values if value.startswith(_REFERENCE)]

    @property
    def networks(self) -> tuple[Network, ...]:
        """The networks beyond the public ones that it may connect to, where it names some."""
        if isinstance(self.allow_private, bool):
            return ()
        name = f"[notifiers.{self.name}] allow_private"
        try:
            return tuple(ipaddress.ip_network(each) for each in self.allow_private)
        except ValueError as bad:
            raise BadConfig(f'{name}: {bad}; write networks as in ["10.1.0.0/16"]') from None

    def value(self, key: str, environ: Mapping[str, str]) -> str:
        """
        What the text *key* is, or what it stands for.

        Raises:
            BadConfig: it is not told, or not where it should be.
        """
        text = getattr(self, key)
        name = f"[notifiers.{self.name}] {key}"
        if text is None:
            raise BadConfig(f"{name} is not told: add {key} = ...")
        if not text.startswith(_REFERENCE):
            return str(text)
        try:
            return dereference(text, environ)
        except BadConfig as bad:
            raise BadConfig(f"{name}: {bad}") from None

    def where(self, key: str, environ: Mapping[str, str]) -> Url:
        """The text *key* as a URL; otherwise as `value`."""
        name = f"[notifiers.{self.name}] {key}"
        return Url.read(name, self.value(key, environ), http=self.allow_http)

    def shown(self) -> dict[str, Any]:
        """As JSON, for `semel config`: of a URL that is written out only where it leads."""
        told = {key: getattr(self, key) for key in self.told}
        for key in {"url", "api"} & set(told):
            if not told[key].startswith(_REFERENCE):
                told[key] = self.where(key, {}).origin
        private = self.allow_private
        return {
            "kind": self.kind,
            **told,
            "allow_private": private if isinstance(private, bool) else list(private),
            "allow_http": self.allow_http,
        }

    def _wanted(self) -> tuple[str, ...]:
        match self.kind:
            case "webhook":
                return ("url",)
            case "telegram":
                return ("token", "chat")
            case "slack":
                return () if self.url else ("token", "channel")
            case "line":
                return ("token", "to")

    def _check(self, name: str, key: str, value: str) -> None:
        if value.startswith(_REFERENCE):
            return
        if not value.strip():
            raise BadConfig(f"{name} is empty: leave it out or say what it is")
        if key in _SECRET or (self.kind, key) == ("slack", "url"):
            raise BadConfig(
                f'{name} is a secret, written out: write "env:NAME" or "file:/path" instead'
            )
        if key in {"url", "api"}:
            self.where(key, {})


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalSettings:
    """What run.approval does where the code does not say."""

    ttl: timedelta = timedelta(minutes=15)  # 1 s to 366 days: how long there is to decide
    notify: tuple[str, ...] = ()  # the notifiers of who is told

    def __post_init__(self) -> None:
        within("[approvals] ttl", self.ttl, timedelta(seconds=1), TTL_MAX)
        twice = next((name for name in self.notify if self.notify.count(name) > 1), None)
        if twice is not None:
            raise BadConfig(f"[approvals] notify names {twice} twice: once is enough")

    def check(self, notifiers: Iterable[str]) -> None:
        """Refuse a recipient that is no notifier."""
        there = list(notifiers)
        for name in self.notify:
            if name not in there:
                named = f"there are {', '.join(sorted(there))}" if there else "there is none"
                raise BadConfig(
                    f"[approvals] notify names {name!r}, and no notifier is called that: {named};"
                    f" add [notifiers.{name if NAME.fullmatch(name) else 'NAME'}]"
                )

    def shown(self) -> dict[str, Any]:
        """As JSON, for `semel config`."""
        return {"ttl": shown(self.ttl), "notify": list(self.notify)}


def read_notifiers(told: Any) -> dict[str, NotifierSettings]:
    """
    The section [notifiers] of the file.

    Raises:
        BadConfig: naming the setting and the mend.
    """
    return {
        name: _notifier(name, dict(table(f"[notifiers.{name}]", settings)))
        for name, settings in table("[notifiers]", told).items()
    }


def _notifier(name: str, told: dict[str, Any]) -> NotifierSettings:
    at = f"[notifiers.{name}]"
    known(at, told, [each.name for each in fields(NotifierSettings) if each.name != "name"])
    if "kind" not in told:
        raise BadConfig(f'{at} has no kind: add kind = "webhook", or another')
    private = told.get("allow_private", False)
    if isinstance(private, list) and all(isinstance(each, str) for each in private):
        told["allow_private"] = tuple(private)
    elif not isinstance(private, bool):
        raise BadConfig(
            f"{at} allow_private is {private!r}: write true, or a list of networks"
            ' as in ["10.1.0.0/16"]'
        )
    chat = told.get("chat")
    if isinstance(chat, int) and not isinstance(chat, bool):
        told["chat"] = str(chat)
    wanted = {"kind": "Kind", "allow_http": "bool"}
    values = {
        key: value
        if key == "allow_private"
        else read(f"{at} {key}", wanted.get(key, "str"), value)
        for key, value in told.items()
    }
    return NotifierSettings(name=name, **values)
