"""
Tools: the servers whose tools `run.tool` calls, as semel.toml names them.

Where a server is, is said here and nowhere else: no input of a run leads a worker to an address.
Secrets are references that only the process which calls looks up.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from semel.config.secret import dereference
from semel.config.url import Url
from semel.config.values import known, matches, read, shown, table, within
from semel.errors import BadConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
ROUTE = re.compile(r"(GET|HEAD|POST|PUT|PATCH|DELETE) (/[!-~]*)")
#: Servers that are in no file: functions of the program, and agents.
RESERVED = ("app", "agents")
ATTEMPTS_MAX = 1000
_REFERENCE = ("env:", "file:")
_SECRET = re.compile(
    r"authori[sz]ation|token|secret|password|api[-_]?key|cookie", re.IGNORECASE
)
#: The keys that each kind of server heeds, beside those of all.
_HEEDED = {
    "url": frozenset({"url", "headers", "token"}),
    "command": frozenset({"command", "args", "env", "cwd"}),
    "http": frozenset({"http", "headers", "token", "routes"}),
}
_OF_ALL = frozenset({"timeout", "attempts", "honours_key"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolServer:
    """One server: MCP over streamable HTTP (url) or stdio (command), or plain HTTP (http)."""

    name: str
    url: str | None = None
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    http: str | None = None  # what the routes begin with
    routes: Mapping[str, str] = field(default_factory=dict)  # a tool's method and path
    headers: Mapping[str, str] = field(default_factory=dict)
    token: str | None = None  # sent as Authorization: Bearer
    timeout: timedelta = timedelta(minutes=5)  # for an answer, where the code says none
    attempts: int = 10  # of a call that did not reach it, or that it lets be repeated
    honours_key: bool | tuple[str, ...] = False  # all its tools, or these, know a repeat

    def __post_init__(self) -> None:
        at = f"[tools.{self.name}]"
        matches(at, "name", self.name, NAME, "1 to 64 of A-Z, a-z, 0-9, _, . and -")
        if self.name in RESERVED:
            raise BadConfig(f"{at}: {self.name} is Semel's own; give the server another name")
        ways = [key for key in _HEEDED if getattr(self, key) is not None]
        if len(ways) != 1:
            raise BadConfig(
                f"{at} has {' and '.join(ways) or 'no url'}: say one of url (MCP over HTTP),"
                " command (MCP over stdio) and http (plain HTTP with routes)"
            )
        for key in self.told:
            if key not in _HEEDED[ways[0]]:
                raise BadConfig(f"{at} {key} is no setting beside {ways[0]}: leave it out")
        self._check_values(at)
        self._check_secrets(at)

    def _check_values(self, at: str) -> None:
        within(f"{at} timeout", self.timeout, timedelta(milliseconds=100), timedelta(days=366))
        within(f"{at} attempts", self.attempts, 1, ATTEMPTS_MAX)
        if self.command is not None and not self.command.strip():
            raise BadConfig(f'{at} command is empty: write a program, as in "python"')
        for key in ("url", "http"):
            value = getattr(self, key)
            if value is not None and not value.startswith(_REFERENCE):
                Url.read(f"{at} {key}", value, http=True)
        for tool, route in self.routes.items():
            if not ROUTE.fullmatch(route):
                raise BadConfig(f'{at} routes {tool}: write it as in "POST /refunds"')
        if self.http is not None and not self.routes:
            raise BadConfig(
                f'{at} has no routes: write routes = {{ refund = "POST /refunds" }}'
            )

    @property
    def told(self) -> list[str]:
        """What it is told, of what depends on its kind."""
        own = {key for keys in _HEEDED.values() for key in keys}
        return [f.name for f in fields(self) if f.name in own and getattr(self, f.name)]

    @property
    def references(self) -> list[str]:
        """Those of its texts that stand for something else."""
        texts = [self.url, self.http, self.token, *self.headers.values(), *self.env.values()]
        return [text for text in texts if text and text.startswith(_REFERENCE)]

    def honours(self, tool: str) -> bool:
        """Whether *tool* is said to know a call again by its key."""
        return (
            self.honours_key if isinstance(self.honours_key, bool) else tool in self.honours_key
        )

    def value(self, key: str, text: str, environ: Mapping[str, str]) -> str:
        """
        What the text *text* of *key* is, or what it stands for.

        Raises:
            BadConfig: it is not where it should be.
        """
        if not text.startswith(_REFERENCE):
            return text
        try:
            return dereference(text, environ)
        except BadConfig as bad:
            raise BadConfig(f"[tools.{self.name}] {key}: {bad}") from None

    def where(self, environ: Mapping[str, str]) -> Url:
        """Where it is, of one that is reached over HTTP."""
        key, text = ("url", self.url) if self.url is not None else ("http", self.http or "")
        return Url.read(f"[tools.{self.name}] {key}", self.value(key, text, environ), http=True)

    @property
    def where_shown(self) -> str:
        """Where it leads, as far as that may be shown."""
        text = self.url or self.http or ""
        if text.startswith(_REFERENCE):
            return text
        return Url.read(f"[tools.{self.name}]", text, http=True).origin

    def sent(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The headers that each request has, with what they stand for."""
        headers = {
            name: self.value(f"headers {name}", text, environ)
            for name, text in self.headers.items()
        }
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.value('token', self.token, environ)}"
        return headers

    def shown(self) -> dict[str, Any]:
        """As JSON, for `semel config`: of a URL that is written out only where it leads."""
        told = {key: getattr(self, key) for key in self.told}
        for key in {"url", "http"} & set(told):
            told[key] = self.where_shown
        plain = {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in told.items()
        }
        honours = self.honours_key
        return {
            **plain,
            "timeout": shown(self.timeout),
            "attempts": self.attempts,
            "honours_key": honours if isinstance(honours, bool) else list(honours),
        }

    def _check_secrets(self, at: str) -> None:
        for key, told in (("headers", self.headers), ("env", self.env)):
            for name, text in told.items():
                if key == "headers" and not (HEADER.fullmatch(name) and text.isprintable()):
                    raise BadConfig(f"{at} headers has {name[:80]!r}, which is no header")
                if _SECRET.search(name) and not text.startswith(_REFERENCE):
                    raise BadConfig(
                        f'{at} {key} {name} is a secret, written out: write "env:NAME" or'
                        ' "file:/path" instead'
                    )
        if self.token is not None and not self.token.startswith(_REFERENCE):
            raise BadConfig(
                f'{at} token is a secret, written out: write "env:NAME" or "file:/path" instead'
            )


def read_tools(told: Any) -> dict[str, ToolServer]:
    """
    The section [tools] of the file, by the server's name.

    Raises:
        BadConfig: naming the setting and the mend.
    """
    return {
        name: _server(name, dict(table(f"[tools.{name}]", settings)))
        for name, settings in table("[tools]", told).items()
    }


def _server(name: str, told: dict[str, Any]) -> ToolServer:
    at = f"[tools.{name}]"
    types = {each.name: str(each.type) for each in fields(ToolServer) if each.name != "name"}
    known(at, told, types)
    values: dict[str, Any] = {}
    for key, value in told.items():
        if key in {"env", "headers", "routes"}:
            values[key] = _texts(f"{at} {key}", value)
        elif key == "honours_key" and isinstance(value, list):
            values[key] = read(f"{at} {key}", "tuple[str, ...]", value)
        elif key == "honours_key":
            values[key] = read(f"{at} {key}", "bool", value)
        else:
            values[key] = read(f"{at} {key}", types[key].removesuffix(" | None"), value)
    return ToolServer(name=name, **values)


def _texts(name: str, told: Any) -> dict[str, str]:
    if not isinstance(told, dict) or not all(isinstance(each, str) for each in told.values()):
        raise BadConfig(f'{name} is {told!r}: write names and texts, as in {{ NAME = "text" }}')
    return dict(told)
