"""
Account: whom the server runs as.

PostgreSQL refuses to run as root. Root's server therefore runs as an account that exists
already; we never make one. Anyone else runs it as themselves.
"""

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict

from .errors import EmbeddedError
from .home import Home

__all__ = ["Account", "choose_account", "named_account"]

CANDIDATES = ("postgres", "nobody")


class _Switch(TypedDict):
    user: int | None
    group: int | None
    extra_groups: list[int] | None


@dataclass(frozen=True, slots=True)
class Account:
    """An account to switch to; `name` is None for ourselves."""

    name: str | None
    uid: int
    gid: int

    @property
    def switch(self) -> _Switch:
        """The arguments of `subprocess` that make a child run as this account."""
        if self.name is None:
            return {"user": None, "group": None, "extra_groups": None}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


def named_account(name: str | None) -> Account:
    """Return the account *name*; KeyError when it does not exist. None: ourselves."""
    if name is None:
        return Account(None, os.geteuid(), os.getegid())
    entry = pwd.getpwnam(name)
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def choose_account(home: Home, environ: Mapping[str, str]) -> Account:
    """
    Return whom the server of *home* runs as.

    An existing data directory keeps its owner. A new one of root goes to SEMEL_PG_USER,
    else to `postgres`, else to `nobody`.

    Raises:
        EmbeddedError: SEMEL_PG_USER names no fit account, or none is there.
    """
    if os.geteuid():
        return named_account(None)
    wanted = environ.get("SEMEL_PG_USER")
    owner = _owner(home)
    for name in (wanted,) if wanted else (owner,) if owner else CANDIDATES:
        try:
            account = named_account(name)
        except KeyError:
            continue
        if account.uid and owner in (None, account.name):
            return account
    if owner is not None:
        raise EmbeddedError(
            f"data {home.data} belongs to account {owner}, which cannot run the server now; "
            f"SEMEL_PG_USER is {wanted!r}",
            log=home.log,
        )
    raise EmbeddedError(
        f"no account for the server of root: {wanted or ' and '.join(CANDIDATES)} absent "
        "or root; set SEMEL_PG_USER to an existing unprivileged account",
        log=home.log,
    )


def _owner(home: Home) -> str | None:
    try:
        uid = home.data.stat().st_uid
    except FileNotFoundError:
        return None
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
