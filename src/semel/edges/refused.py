"""Refused: why a request is neither executed nor replayed, by what it met."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel.errors import (
    InFlight,
    KeyConflict,
    LegacyUnverifiable,
    NeedsReconcile,
    ResultNotKept,
    TransactionUnfit,
)

if TYPE_CHECKING:
    from semel.core.operations import Begun
    from semel.errors import SemelError

_REFUSED: dict[str, tuple[type[SemelError], str]] = {
    "mismatch": (KeyConflict, "the key was used with another input"),
    "procedure": (KeyConflict, "the key was used for another operation"),
    "actor": (KeyConflict, "the key was used by another actor"),
    "foreign": (KeyConflict, "the key belongs to a row of another system"),
    "version": (LegacyUnverifiable, "the row's digest is of a version or key not known here"),
    "legacy": (LegacyUnverifiable, "the row has no digest to compare"),
    "in_flight": (InFlight, "the same request is being executed"),
    "unknown": (NeedsReconcile, "the operation began, and nobody knows how it ended"),
    "gone": (ResultNotKept, "the operation was executed, its result is not kept"),
    "written": (TransactionUnfit, "the transaction has written already"),
    "isolation": (TransactionUnfit, "the transaction is not READ COMMITTED"),
}


def refused(begun: Begun) -> SemelError:
    """Why a request that met *begun* is neither executed nor replayed."""
    kind, sentence = _REFUSED[begun.outcome]
    return kind(sentence)
