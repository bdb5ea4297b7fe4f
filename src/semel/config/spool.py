"""
The section [spool]: where an ingress keeps what comes while the database is away, and its keys.

A key is text of at least 32 bytes and named by reference; the first one writes, both read. Keys are
looked up by the process that has the spool, not by those that only show or check the settings.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from semel.config.secret import Secret, dereference
from semel.config.values import within
from semel.errors import BadConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

KEYS_MAX = 2
KEY_BYTES_MIN = 32
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolSettings:
    """The spool of an ingress; without a path there is none."""

    path: str = ""  # a folder on a local disk, of this process alone
    keys: tuple[
        str, ...
    ] = ()  # references; the first one writes, the second one is the old one
    bytes_max: int = 256 * MIB  # of its files together, 1 MiB to 1 TiB
    wait: timedelta = timedelta(seconds=1)  # what the database takes later is spooled

    def __post_init__(self) -> None:
        within("[spool] bytes_max", self.bytes_max, MIB, MIB * MIB)
        within("[spool] wait", self.wait, timedelta(milliseconds=50), timedelta(seconds=4))
        if bool(self.path) != bool(self.keys):
            raise BadConfig(
                "[spool] needs a path and keys, since what is kept there is encrypted: add"
                ' path = "/var/lib/semel/spool" and keys = ["env:SPOOL_KEY"]'
            )
        if len(self.keys) > KEYS_MAX:
            raise BadConfig(
                f"[spool] keys has {len(self.keys)}: the one that writes and, while it is"
                " rotated, the one before"
            )
        for reference in self.keys:
            try:
                Secret(reference=reference, unread=True)
            except BadConfig as bad:
                raise BadConfig(f"[spool] keys: {bad}") from None

    def check(self, sources: Iterable[str]) -> None:
        """Refuse *sources* that spool where there is no spool."""
        for name in sources:
            if not self.is_there:
                raise BadConfig(
                    f"[sources.{name}] spool = true, and there is no [spool]: add one with path"
                    " and keys"
                )

    @property
    def is_there(self) -> bool:
        """Whether there is one."""
        return bool(self.path)

    @property
    def folder(self) -> Path:
        """Where it is; a relative path begins at the working directory."""
        return Path(self.path)

    def keys_read(self, environ: Mapping[str, str] = os.environ) -> list[bytes]:
        """
        The keys themselves; the first one writes.

        Raises:
            BadConfig: one is not where it should be, or too short to be a key.
        """
        return [_read(reference, environ) for reference in self.keys]


def _read(reference: str, environ: Mapping[str, str]) -> bytes:
    try:
        key = dereference(reference, environ).encode("utf-8", "surrogateescape")
    except BadConfig as bad:
        raise BadConfig(f"[spool] keys: {bad}") from None
    if len(key) < KEY_BYTES_MIN:
        raise BadConfig(
            f"[spool] keys: {reference} is shorter than {KEY_BYTES_MIN} bytes:"
            " `openssl rand -hex 32` makes one"
        )
    return key
