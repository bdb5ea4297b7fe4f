"""
Secrets by reference: a setting names where one is, never what it is.

A secret is read once, when the settings are; a rotation lists two and restarts.
"""

from __future__ import annotations

import os
import re
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from semel.errors import BadConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What of a connection string is no secret.
_SHOWN = ("host", "port", "dbname", "user")


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """
    Where a secret is. repr and str never show it.

    Raises:
        BadConfig: the reference is a literal, or what it names is not there or empty.
    """

    reference: str  # "env:NAME" or "file:/path"
    environ: InitVar[Mapping[str, str] | None] = None  # the process's own if None
    unread: InitVar[bool] = False  # only the reference is wanted: nothing is looked up
    _value: str = field(init=False, repr=False, compare=False)

    def __post_init__(self, environ: Mapping[str, str] | None, unread: bool) -> None:
        if not self.reference.startswith(("env:", "file:")):
            raise BadConfig('a secret is written out: write "env:NAME" or "file:/path" instead')
        value = (
            ""
            if unread
            else dereference(self.reference, os.environ if environ is None else environ)
        )
        object.__setattr__(self, "_value", value)

    def reveal(self) -> str:
        """
        The secret itself; never empty.

        Raises:
            BadConfig: it was not read.
        """
        if not self._value:
            raise BadConfig(f"{self.reference} was not read: this command takes no requests")
        return self._value


def dereference(reference: str, environ: Mapping[str, str]) -> str:
    """
    What `env:NAME` or `file:/path` stands for; a file's last line ending is no part of it.

    Raises:
        BadConfig: it is not there, or empty.
    """
    kind, _, where = reference.partition(":")
    if kind == "env":
        value = environ.get(where, "")
        absent = f"set the variable {where}"
    else:
        try:
            value = Path(where).read_text().rstrip("\r\n")
        except (OSError, ValueError) as bad:
            raise BadConfig(f"{reference} cannot be read: {type(bad).__name__}") from None
        absent = f"write it into {where}"
    if not value:
        raise BadConfig(f"{reference} is empty or not there: {absent}")
    return value


def described(dsn: str) -> str:
    """
    Where *dsn*, a URL or a conninfo string, leads: host, port, database and user, or just `set`.

    It is read as libpq reads it. A password with a character that had to be escaped is in part
    a host or a name to libpq, so what looks as if it was one is not shown.
    """
    from psycopg import ProgrammingError  # noqa: PLC0415 - the driver is loaded by who uses it
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415

    try:
        parts = conninfo_to_dict(dsn)
    except ProgrammingError:
        return "set"
    shown = {key: str(parts[key]) for key in _SHOWN if parts.get(key) is not None}
    if "://" in dsn:
        authority = re.split(r"[/?#]", dsn.partition("://")[2], maxsplit=1)[0]
        if dsn.count("@") != authority.count("@") or authority.count("@") > 1:
            return "set"
    if not re.fullmatch(r"[0-9,]*", shown.get("port", "")):
        return "set"
    return " ".join(f"{key}={value}" for key, value in shown.items()) or "set"
