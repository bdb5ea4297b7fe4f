"""
Reconcile settings: where Alertmanager's API is, and when what it says stands against what was told.

    reconcile = "https://am.example.com:9093"
    reconcile = { url = "http://am:9093", receiver = "semel", authorization = "env:AM_AUTH" }
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from semel.config.secret import dereference
from semel.config.url import Url
from semel.config.values import known, read, shown, table, within
from semel.errors import BadConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

_REFERENCE = ("env:", "file:")
#: What may stand in a header's value.
_HEADER = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
RECEIVER_CHARS_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileSettings:
    """How a source asks Alertmanager what fires there. No setting is heeded by anything else."""

    source: str  # whose they are
    url: str = ""  # of Alertmanager, with its route prefix; required
    receiver: str | None = None  # only what goes to it; None: all that fires there
    every: timedelta = timedelta(minutes=1)  # 1 s to 1 h
    settle: timedelta = timedelta(minutes=5)  # so long it may yet tell; 0 s to 1 day
    gone_after: timedelta = timedelta(minutes=15)  # so long an open alert must be absent there
    authorization: str | None = None  # a reference: the header's value, as in Bearer x
    header: str | None = field(default=None, repr=False)  # what that stands for; never shown

    def __post_init__(self) -> None:
        at = f"[sources.{self.source}] reconcile"
        Url.read(f"{at} url", self.url, http=True)
        if "?" in self.url:
            raise BadConfig(f"{at} url has a ?: write only what comes before /api/v2")
        within(f"{at} every", self.every, timedelta(seconds=1), timedelta(hours=1))
        within(f"{at} settle", self.settle, timedelta(0), timedelta(days=1))
        within(f"{at} gone_after", self.gone_after, timedelta(0), timedelta(days=30))
        if self.receiver is not None and not 0 < len(self.receiver) <= RECEIVER_CHARS_MAX:
            raise BadConfig(f"{at} receiver is empty or too long: write the receiver's name")

    @property
    def at(self) -> Url:
        """Where it is, as it is connected to."""
        return Url.read(f"[sources.{self.source}] reconcile url", self.url, http=True)

    def shown(self) -> dict[str, Any]:
        """As JSON, for `semel config`: the reference, never what it stands for."""
        told = {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if each.name not in {"source", "header"} and getattr(self, each.name) is not None
        }
        return {key: shown(value) for key, value in told.items()}


def read_reconcile(
    source: str, told: Any, environ: Mapping[str, str] = os.environ, *, secrets: bool = True
) -> ReconcileSettings:
    """
    The setting `reconcile` of *source*: a URL, or a table.

    Args:
        secrets: False: what `authorization` stands for is not looked up.

    Raises:
        BadConfig: naming the setting and what it may be.
    """
    at = f"[sources.{source}] reconcile"
    if isinstance(told, str):
        told = {"url": told}
    types = {
        each.name: str(each.type)
        for each in fields(ReconcileSettings)
        if each.name not in {"source", "header"}
    }
    known(at, table(at, told), types)
    if "url" not in told:
        raise BadConfig(f'{at} has no url: add url = "https://..."')
    values = {key: read(f"{at} {key}", types[key], value) for key, value in told.items()}
    reference = values.get("authorization")
    if reference is not None:
        if not reference.startswith(_REFERENCE):
            raise BadConfig(
                f"{at} authorization is a secret, written out: write"
                ' "env:NAME" or "file:/path" instead'
            )
        if secrets:
            values["header"] = _header(at, reference, environ)
    return ReconcileSettings(source=source, **values)


def _header(at: str, reference: str, environ: Mapping[str, str]) -> str:
    try:
        text = dereference(reference, environ)
    except BadConfig as bad:
        raise BadConfig(f"{at} authorization: {bad}") from None
    if not _HEADER.fullmatch(text) or " " not in text:
        raise BadConfig(
            f"{at} authorization: {reference} is no value of that header: write the scheme too,"
            " as in Bearer TOKEN or Basic BASE64"
        )
    return text
