"""
Ledger settings: how the operations of one project are kept.

Its keys are references that only a program which begins operations looks up: `keys` does, once,
when that program starts.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from semel.config.secret import Secret, dereference
from semel.config.settings import PROJECT
from semel.config.values import known, matches, table
from semel.errors import BadConfig
from semel.model import DigestKey

if TYPE_CHECKING:
    from collections.abc import Mapping

KID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")
#: Live at a time: one, and while it is rotated the one before.
KEYS_MAX = 2
KEY_BYTES_MIN = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSettings:
    """The ledger of one project."""

    project: str
    digest_keys: tuple[tuple[str, str], ...] = ()  # (kid, reference); the first one writes

    def __post_init__(self) -> None:
        at = f"[ledger.{self.project}]"
        matches(at, "project", self.project, PROJECT, "1 to 64 of a-z, 0-9, _ and -")
        if len(self.digest_keys) > KEYS_MAX:
            raise BadConfig(
                f"{at} digest_keys has {len(self.digest_keys)} keys: the one that writes and, while"
                " it is rotated, the one before"
            )
        for kid, reference in self.digest_keys:
            matches(
                at, "digest_keys", kid, KID, "a key's name is 1 to 32 of A-Z, a-z, 0-9, _.-"
            )
            try:
                Secret(reference=reference, unread=True)
            except BadConfig as bad:
                raise BadConfig(f"{at} digest_keys {kid}: {bad}") from None

    @property
    def references(self) -> list[str]:
        """Where the keys are."""
        return [reference for _, reference in self.digest_keys]

    def keys(self, environ: Mapping[str, str] = os.environ) -> tuple[DigestKey, ...]:
        """
        The keys themselves; the first one writes, all of them judge.

        Raises:
            BadConfig: one is not where it should be, or too short to be a key.
        """
        return tuple(
            DigestKey(kid, self._secret(kid, reference, environ))
            for kid, reference in self.digest_keys
        )

    def shown(self) -> dict[str, Any]:
        """As JSON, for `semel config`."""
        return {"digest_keys": dict(self.digest_keys)}

    def _secret(self, kid: str, reference: str, environ: Mapping[str, str]) -> bytes:
        name = f"[ledger.{self.project}] digest_keys {kid}"
        try:
            secret = dereference(reference, environ).encode("utf-8", "surrogateescape")
        except BadConfig as bad:
            raise BadConfig(f"{name}: {bad}") from None
        if len(secret) < KEY_BYTES_MIN:
            raise BadConfig(
                f"{name} is shorter than {KEY_BYTES_MIN} bytes: `openssl rand -hex 32` makes one"
            )
        return secret


def read_ledgers(told: Any) -> dict[str, LedgerSettings]:
    """
    The section [ledger] of the file, by project.

    Raises:
        BadConfig: naming the setting and the mend.
    """
    return {
        project: _ledger(project, table(f"[ledger.{project}]", settings))
        for project, settings in table("[ledger]", told).items()
    }


def _ledger(project: str, told: dict[str, Any]) -> LedgerSettings:
    at = f"[ledger.{project}]"
    known(at, told, [each.name for each in fields(LedgerSettings) if each.name != "project"])
    keys = told.get("digest_keys", {})
    if not isinstance(keys, dict) or not all(isinstance(each, str) for each in keys.values()):
        raise BadConfig(
            f'{at} digest_keys: write names and references, as in {{ k1 = "env:LEDGER_KEY" }}'
        )
    return LedgerSettings(project=project, digest_keys=tuple(keys.items()))
