"""
Reading settings: the environment wins over the file, the file over the defaults.

The whole is refused when one setting is: an unknown key or variable, a missing unit, an
impossible value. What is not told is not guessed.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, get_args

from semel.config.alert_poll import read_reconcile
from semel.config.hmac import HmacSettings
from semel.config.ledger import read_ledgers
from semel.config.limits import read_rate
from semel.config.notifiers import ApprovalSettings, read_notifiers
from semel.config.poll import check_bots, read_poll
from semel.config.proof import check_secrets
from semel.config.routing import read_routing
from semel.config.secret import Secret, dereference
from semel.config.settings import Channel, Retention, Server, Settings, Source, WorkerSettings
from semel.config.spool import SpoolSettings
from semel.config.tools import read_tools
from semel.config.values import known, read, table
from semel.errors import BadConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

T = TypeVar("T", WorkerSettings, Server, Retention, ApprovalSettings, SpoolSettings)
S = TypeVar("S")

#: Settings outside any section, with their types.
_TOP = {
    "dsn": "str",
    "home": "str",
    "project": "str",
    "pooler": "bool",
    "public_url": "str",
}
_Section: TypeAlias = type[
    WorkerSettings | Server | Retention | ApprovalSettings | SpoolSettings
]
_SECTIONS: dict[str, _Section] = {
    "worker": WorkerSettings,
    "server": Server,
    "retention": Retention,
    "approvals": ApprovalSettings,
    "spool": SpoolSettings,
}
#: Variables that are no setting of the file: they choose it, or belong to tests and tools.
_EXTRAS = frozenset(
    f"SEMEL_{name}"
    for name in (
        "CONFIG",
        "DEBUG",
        "PG_BIN",
        "PG_USER",
        "PORT",
        "STOP_AT",
        "TEST_HOME",
        "TESTING",
    )
)

#: Settings of a source that only some channels heed.
_OWN = {
    "resolved_grace": ("alertmanager",),
    "run_on": ("alertmanager",),
    "unit": ("alertmanager",),
    "reminder": ("alertmanager",),
    "stale_after": ("alertmanager",),
    "reconcile": ("alertmanager",),
    "require_key": ("api",),
    "hmac": ("hmac",),
    "poll": ("telegram-poll",),
    "window": ("slack", "standard", "stripe"),
    "content_window": ("gitea", "github", "hmac"),
    "spool": tuple(name for name in get_args(Channel) if name != "telegram-poll"),
}
#: What an Alertmanager's reminder is where it is no event: told as a word, or left out.
_COUNTED = "count"


def load(
    environ: Mapping[str, str] = os.environ, cwd: Path | None = None, *, secrets: bool = True
) -> Settings:
    """
    The settings of this process.

    Args:
        environ: SEMEL_CONFIG names the file; SEMEL_<KEY> and SEMEL_<SECTION>_<KEY> set one
            value each. An empty variable counts as unset.
        cwd: Where semel.toml is looked for and relative paths begin.
        secrets: False for who takes no requests: a source's secrets are not looked up, so they
            need not be there.

    Raises:
        BadConfig: naming the setting and the mend.
    """
    base = cwd or Path.cwd()
    env = {
        name: value for name, value in environ.items() if name.startswith("SEMEL_") and value
    }
    if "SEMEL_PORT" in env and "SEMEL_SERVER_PORT" in env:
        raise BadConfig("SEMEL_PORT and SEMEL_SERVER_PORT are the same setting: unset one")
    path = _path(base, env.get("SEMEL_CONFIG"))
    told = _file(path) if path else {}
    known("semel.toml", told, (*_TOP, "sources", "notifiers", "ledger", "tools", *_SECTIONS))
    top = _values("", _TOP, {key: told[key] for key in _TOP if key in told}, env)
    sources = _sources(told, environ, secrets=secrets)
    notifiers = read_notifiers(told.get("notifiers", {}))
    ledger = read_ledgers(told.get("ledger", {}))
    tools = read_tools(told.get("tools", {}))
    spool = _section(SpoolSettings, "spool", told, env)
    if spool.is_there:
        spool = replace(spool, path=str(base / spool.path))
    references = [
        *(secret.reference for source in sources for secret in source.secrets),
        *(source.reconcile.authorization or "" for source in sources if source.reconcile),
        *(reference for each in notifiers.values() for reference in each.references),
        *(reference for each in ledger.values() for reference in each.references),
        *(reference for each in tools.values() for reference in each.references),
        *spool.keys,
    ]
    dsn = top.get("dsn")
    if dsn is not None and dsn.startswith(("env:", "file:")):
        references.append(dsn)
        try:
            top["dsn"] = dereference(dsn, environ)
        except BadConfig as bad:
            raise BadConfig(f"dsn: {bad}") from None
    _variables(env, {reference.removeprefix("env:") for reference in references})
    worker = _section(WorkerSettings, "worker", told, env)
    server = _section(Server, "server", told, env)
    retention = _section(Retention, "retention", told, env)
    approvals = _section(ApprovalSettings, "approvals", told, env)
    home = base / top.get("home", ".semel")
    _placeable(home)
    return _blamed(
        "",
        _TOP,
        env,
        lambda: Settings(
            **{**top, "home": home},
            worker=worker,
            server=server,
            retention=retention,
            approvals=approvals,
            notifiers=notifiers,
            ledger=ledger,
            tools=tools,
            spool=spool,
            testing=read("SEMEL_TESTING", "bool", env.get("SEMEL_TESTING", "0"), worded=True),
            sources={(source.project, source.name): source for source in sources},
            file=path,
        ),
    )


def _path(base: Path, named: str | None) -> Path | None:
    """The file to read: the one that is named, or the one that lies here, if it does."""
    path = base / (named or "semel.toml")
    return path if named is not None or path.exists() else None


def _placeable(home: Path) -> None:
    """Refuse a home that no folder can be at."""
    for place in (home, *home.parents):
        if os.path.lexists(place):
            if not place.is_dir():
                raise BadConfig(f"home is {home}, but {place} is no folder: name another place")
            return


def _file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise BadConfig(f"SEMEL_CONFIG names {path}, which is not there") from None
    except (OSError, UnicodeDecodeError) as bad:
        raise BadConfig(f"{path} cannot be read: {bad}") from None
    except (ValueError, RecursionError) as bad:  # also a number too long for Python
        raise BadConfig(f"{path} is not TOML: {bad}") from None


def _section(kind: type[T], section: str, told: Mapping[str, Any], env: Mapping[str, str]) -> T:
    types = _types(kind)
    values = _values(section, types, table(f"[{section}]", told.get(section, {})), env)
    return _blamed(section, types, env, lambda: kind(**values))


def _blamed(
    section: str, keys: Iterable[str], env: Mapping[str, str], make: Callable[[], S]
) -> S:
    """What *make* makes; its refusal names the variable where that, and no file, said it."""
    try:
        return make()
    except BadConfig as bad:
        said = str(bad)
        for key in keys:
            for name in _names(section, key):
                if name in env:
                    where = f"[{section}]" if section else "semel.toml"
                    said = said.replace(f"{where} {key} ", f"{name} ")
        raise BadConfig(said) from None


def _values(
    section: str, types: Mapping[str, str], told: Mapping[str, Any], env: Mapping[str, str]
) -> dict[str, Any]:
    where = f"[{section}]" if section else "semel.toml"
    known(where, told, types)
    values = {key: read(f"{where} {key}", types[key], value) for key, value in told.items()}
    for key, wanted in types.items():
        for name in _names(section, key):
            if name in env:
                values[key] = read(name, wanted, env[name], worded=True)
    return values


def _sources(
    told: Mapping[str, Any], environ: Mapping[str, str], *, secrets: bool
) -> list[Source]:
    types = {key: kind for key, kind in _types(Source).items() if key != "name"}
    found = []
    for name, settings in table("[sources]", told.get("sources", {})).items():
        at = f"[sources.{name}]"
        values = dict(table(at, settings))
        known(at, values, types)
        if "channel" not in values:
            raise BadConfig(f"{at} has no channel: add channel = ...")
        structured: dict[str, Any] = {**read_routing(at, values), **read_rate(at, values)}
        own = _secrets(at, values.pop("secrets", []), environ, unread=not secrets)
        signing = _hmac(name, values["hmac"]) if "hmac" in values else None
        asking = read_poll(name, values["poll"]) if "poll" in values else None
        if "reconcile" in values:
            structured["reconcile"] = read_reconcile(
                name, values["reconcile"], environ, secrets=secrets
            )
        if values.get("reminder") == _COUNTED:
            values["reminder"] = "never"
        read_values = {
            key: read(f"{at} {key}", types[key], value)
            for key, value in values.items()
            if key not in {"hmac", "poll", "reconcile"}
        }
        for key, channels in _OWN.items():
            if key in values and values["channel"] not in channels:
                raise BadConfig(
                    f"{at} {key} is a setting of channel {', '.join(channels)}, and this is a"
                    f" source of {values['channel']}: leave it out"
                )
        source = Source(
            name=name, secrets=own, hmac=signing, poll=asking, **structured, **read_values
        )
        if not own and source.authenticate != "none":
            raise BadConfig(
                f'{at} has no secrets: add secrets = ["env:NAME"], or authenticate = "none" if'
                " whoever reaches the server may post to it"
            )
        if secrets:
            check_secrets(at, source)
        found.append(source)
    if secrets:
        check_bots(found)
    return found


def _hmac(name: str, told: Any) -> HmacSettings:
    at = f"[sources.{name}.hmac]"
    types = {key: kind for key, kind in _types(HmacSettings).items() if key != "source"}
    known(at, table(at, told), types)
    values = {key: read(f"{at} {key}", types[key], value) for key, value in told.items()}
    return HmacSettings(source=name, **values)


def _secrets(
    at: str, told: Any, environ: Mapping[str, str], *, unread: bool
) -> tuple[Secret, ...]:
    if not isinstance(told, list) or not all(isinstance(each, str) for each in told):
        raise BadConfig(f'{at} secrets: write a list of references, as in ["env:NAME"]')
    try:
        return tuple(Secret(reference=each, environ=environ, unread=unread) for each in told)
    except BadConfig as bad:
        raise BadConfig(f"{at} secrets: {bad}") from None


def _variables(env: Iterable[str], referred: set[str]) -> None:
    """Refuse a SEMEL_* variable that means nothing, unless a setting refers to it."""
    names = set(_EXTRAS)
    for section, keys in {
        "": _TOP,
        **{name: _types(kind) for name, kind in _SECTIONS.items()},
    }.items():
        names.update(name for key in keys for name in _names(section, key))
    known("the environment", (name for name in env if name not in referred), names)


def _names(section: str, key: str) -> tuple[str, ...]:
    name = f"SEMEL_{section}_{key}" if section else f"SEMEL_{key}"
    return (
        ("SEMEL_PORT", name.upper())
        if (section, key) == ("server", "port")
        else (name.upper(),)
    )


def _types(kind: _Section | type[Source | HmacSettings]) -> dict[str, str]:
    return {each.name: str(each.type) for each in fields(kind)}
