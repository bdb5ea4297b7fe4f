"""
Keys: what an action is called on the wire, from its first try to the last after a restart.

A key belongs to the name of an action and the caller's id of it ("pay", the order). A store makes
it once and gives the same one until the caller says that the action is done; the answer of a
server never forgets a key.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from contextlib import closing
from typing import TYPE_CHECKING, Protocol

from semel.errors import BadKey

if TYPE_CHECKING:
    from collections.abc import Callable

#: The header, and the seed's spelling of it, which a caller may have set.
HEADER = "Idempotency-Key"
SPELLINGS = (HEADER, "idempotency_key")
KEY_CHARS_MAX = 255

_TABLE = """create table if not exists kept (
    name text not null,
    action_id text not null,
    key text not null,
    primary key (name, action_id)
) without rowid"""


class KeyStore(Protocol):
    """Where the keys of open actions are."""

    def keep(self, name: str, action_id: str) -> str:
        """The key of an action; made and kept first, where it has none."""

    def forget(self, name: str, action_id: str) -> None:
        """The action is done; the next one of this id is another. Unknown ones are fine."""


class MemoryKeys:
    """Keys of this process: kept over retries, gone with it."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], str] = {}

    def keep(self, name: str, action_id: str) -> str:
        """As KeyStore says."""
        return self._kept.setdefault((name, action_id), fresh())

    def forget(self, name: str, action_id: str) -> None:
        """As KeyStore says."""
        self._kept.pop((name, action_id), None)


class FileKeys:
    """
    Keys in a file of SQLite: kept over restarts, and one for all the processes that use it.

    A key is on disk before it is sent. The file is readable by its owner only.

    Raises:
        OSError: the file cannot be made.
        sqlite3.Error: it cannot be written, or is no such file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
        with closing(self._open()) as file:
            file.execute(_TABLE)

    def keep(self, name: str, action_id: str) -> str:
        """As KeyStore says."""
        with closing(self._open()) as file:
            file.execute(
                "insert or ignore into kept values (?, ?, ?)", (name, action_id, fresh())
            )
            found = file.execute(
                "select key from kept where (name, action_id) = (?, ?)", (name, action_id)
            )
            (key,) = found.fetchone()
        return str(key)

    def forget(self, name: str, action_id: str) -> None:
        """As KeyStore says."""
        with closing(self._open()) as file:
            file.execute("delete from kept where (name, action_id) = (?, ?)", (name, action_id))

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, isolation_level=None)


class PairKeys:
    """
    Keys behind two functions of the caller, such as a column of the order itself.

    Args:
        load: The kept key of (name, action id), or None.
        save: Keep this key of (name, action id), durably, or forget it where it is None. Where two
            processes may begin one action, it must raise in the second: no key is sent before
            it has returned.
    """

    def __init__(
        self,
        load: Callable[[str, str], str | None],
        save: Callable[[str, str, str | None], None],
    ) -> None:
        self._load = load
        self._save = save

    def keep(self, name: str, action_id: str) -> str:
        """As KeyStore says."""
        key = self._load(name, action_id)
        if key is None:
            key = fresh()
            self._save(name, action_id, key)
        return key

    def forget(self, name: str, action_id: str) -> None:
        """As KeyStore says."""
        self._save(name, action_id, None)


def fresh() -> str:
    """A key that was never used."""
    return str(uuid.uuid4())


def quoted(key: str) -> str:
    """
    *key* as it stands in the header: a structured-field string.

    Raises:
        BadKey: it is empty, longer than 255 characters, or not printable ASCII.

    Source: draft-ietf-httpapi-idempotency-key-header-07, 2.1; RFC 9651, 4.1.6.
    """
    if not 0 < len(key) <= KEY_CHARS_MAX or not (key.isascii() and key.isprintable()):
        raise BadKey(f"a key has 1 to {KEY_CHARS_MAX} printable ASCII characters")
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
