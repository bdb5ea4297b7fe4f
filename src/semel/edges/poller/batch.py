"""
A batch: updates as offers, and the id to ask from once they are committed.

To ask from an id makes the server forget all below it. So that id is above every update that is
in the batch and above no other: ids begin anew after a quiet week, also further down, and the
largest that ever came says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from semel.edges.channel import Request, quarantined
from semel.edges.channels import READERS
from semel.edges.routing import routed
from semel.errors import SemelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semel.config import Source
    from semel.edges.poller.answer import Update
    from semel.model import Offer

#: Updates of one transaction; a server sends a hundred.
BATCH_MAX = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What is committed together."""

    ids: list[int]  # of each update at the server; of one that tells none, where it stood
    updates: list[Update]
    named: bool  # at least one tells its id itself

    @property
    def next_id(self) -> int:
        """To ask from when all of it is committed."""
        return max(self.ids) + 1

    def parts(self) -> list[Batch]:
        """Each update by itself, in order."""
        return [
            Batch(ids=[each], updates=[update], named=self.named)
            for each, update in zip(self.ids, self.updates, strict=True)
        ]


def planned(updates: Sequence[Update], next_id: int | None) -> Batch | None:
    """
    The first updates as a batch; those beyond BATCH_MAX come again.

    Args:
        updates: In the server's order, which is that of their ids.
        next_id: That was asked from, as far as it is known.

    Returns:
        None: nobody can say where they stand, since none has an id.
    """
    known = [update.id for update in updates if update.id is not None]
    if not known and next_id is None:
        return None
    ahead = next((n for n, update in enumerate(updates) if update.id is not None), 0)
    at = max(known[0] - ahead if known else next_id or 0, 0) - 1
    placed: list[tuple[int, Update]] = []
    for update in updates:
        at = update.id if update.id is not None else at + 1
        placed.append((at, update))
    placed.sort(key=lambda one: one[0])
    placed = placed[:BATCH_MAX]
    return Batch(
        ids=[each for each, _ in placed],
        updates=[update for _, update in placed],
        named=any(update.id is not None for _, update in placed),
    )


def offers(source: Source, batch: Batch) -> list[Offer]:
    """The batch's updates as *source* offers them, one each."""
    return [_offer(source, update.raw) for update in batch.updates]


def unkept(source: Source, batch: Batch, reason: str) -> list[Offer]:
    """The same, of updates that the database cannot keep: raw, for a person to look at."""
    return [
        offer
        for update in batch.updates
        for offer in quarantined(_request(update.raw), source, reason)
    ]


def _offer(source: Source, raw: bytes) -> Offer:
    request = _request(raw)
    try:
        reading = READERS[source.channel](request, source)
    except Exception as bad:  # noqa: BLE001 - whatever it is, it must not stop those behind it
        why = str(bad) if isinstance(bad, SemelError) else type(bad).__name__
        reading = quarantined(request, source, why)
    if not isinstance(reading, list):
        reading = quarantined(request, source, "it is no update")
    return routed(reading, source)[0]


def _request(raw: bytes) -> Request:
    """As one that was verified: the server proved itself by its certificate."""
    return Request(method="POST", headers=[], body=raw, local=True, admitted=True)
