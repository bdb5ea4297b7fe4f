"""
Measure: what the figures of several rounds say together.

Ratios are made round by round, since a machine's speed swings more than two programs that run
one after the other within a round. A claim of ours is the lower quartile of them, never the best.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figures:
    """One figure, once for each round."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def lower(self) -> float:
        """The lower quartile; of one round, that round."""
        return quantile(self.values, 0.25)

    def over(self, other: "Figures") -> "Figures":
        """Ours over theirs, round by round; rounds that either lacks are left out."""
        pairs = zip(self.values, other.values, strict=False)
        return Figures(tuple(mine / theirs for mine, theirs in pairs if theirs))

    def as_json(self) -> dict[str, object]:
        return {
            "median": self.median,
            "lower_quartile": self.lower,
            "rounds": list(self.values),
        }


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which *share* of *values* lies, between neighbours where it falls there."""
    ranked = sorted(values)
    place = share * (len(ranked) - 1)
    below = int(place)
    above = min(below + 1, len(ranked) - 1)
    return ranked[below] + (ranked[above] - ranked[below]) * (place - below)
