"""
Goals: what the figures are to reach, and whether they do.

A ratio is judged round by round: at least by its lower quartile, at most by its median. A figure
of its own, without another to compare with, is judged the same way.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from digest import MEMBERS, PLAIN, URL, WAYS
from measure import Figures

BEST = "best Python peer"


@dataclass(frozen=True, slots=True)
class Goal:
    """One line: *what* of ours, in *unit*, over *against* where that is told."""

    what: str
    goal: float
    against: str = ""
    unit: str = "rate"
    at_most: bool = False
    shown: str = "ratio"  # the unit in words


GOALS = (
    Goal("drain, 1 worker", 2.0, "pgqueuer"),
    Goal("drain, 1 worker", 1.0, "pgboss"),
    Goal("drain, 1 worker", 1.0, "graphile"),
    Goal("semel.start", 1.2, BEST),
    Goal("event_accept", 2.0, BEST),
    Goal("a batch of 100,000", 1.0, "pgqueuer"),
    Goal("HTTP api", 2.0, "route"),
    Goal("HTTP alertmanager", 2.0, "route"),
    Goal("HTTP github", 2.0, "route"),
    Goal("HTTP github", 1.0, "route", unit="p99_ms", at_most=True, shown="p99"),
    Goal("HTTP github again", 1.0, "HTTP github"),
    Goal("pick-up p50", 1.5, "pgqueuer", unit="ms", at_most=True),
    Goal("pick-up p99", 1.5, "pgqueuer", unit="ms", at_most=True),
    Goal("steps", 3.0, "dbos"),
    Goal("resume after an approval", 5.0, "a NOTIFY and SELECT", "growth", at_most=True),
    Goal("a mutation under a key", 0.9, "two functions"),
    Goal("a mutation that may fail", 0.5, "plain"),
    Goal("a mutation that may fail", 1.4, "naive"),
    Goal("a replay", 2.0, "plain"),
    Goal("a mutation through once", 0.5, "plain"),
    Goal("a mutation through once", 1.4, "naive"),
    Goal("idle, 10,000 ask", 1.1, "none", "growth", at_most=True, shown="statements"),
    Goal("idle, 10,000 ask", 1.1, "none", "reading", at_most=True, shown="buffers"),
    Goal("drain beside a limited agent", 0.7, unit="ratio", shown="of its rate alone"),
    Goal("drain, snapshot held", 0.6, "drain, no snapshot"),
    Goal("drain, 1,000,000 finished", 0.9, "drain, no snapshot"),
    *(
        Goal(f"buffers of a {what}, last tenth", 2.0, "first tenth", "growth", at_most=True)
        for what in ("claim", "hint", "sweep")
    ),
    *(
        Goal(f"{what}, {version} {decode}", 4.0, PLAIN, unit="ms", at_most=True)
        for what in (URL, MEMBERS)
        for version, decode in WAYS
    ),
    Goal("idle, 1 project", 2.0, unit="statements", at_most=True, shown="statements/s"),
    Goal("idle, 100 projects", 5.0, unit="statements", at_most=True, shown="statements/s"),
    Goal("drain, 1 worker", 80.0, unit="rss_mb", at_most=True, shown="MB of memory at most"),
    Goal(
        "accept, claim and finish",
        2.5 * 1024,
        unit="wal_bytes",
        at_most=True,
        shown="bytes of WAL a run",
    ),
)
#: Wished for, not promised.
AIMS = {("drain, 1 worker", "graphile")}


class Measured(Protocol):
    """Where figures are found."""

    def figures(self, what: str, who: str, unit: str) -> Figures | None: ...

    def rows(self, what: str, unit: str) -> list[tuple[str, Figures]]: ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """A goal beside its figure; None was not measured."""

    goal: Goal
    figures: Figures | None

    @property
    def outcome(self) -> str:
        """The word for it: met, missed, or not measured; an aim is reached or not."""
        if self.figures is None:
            return "not measured"
        bound = self.goal.goal
        met = self.figures.median <= bound if self.goal.at_most else self.figures.lower >= bound
        if (self.goal.what, self.goal.against) in AIMS:
            return "aim, reached" if met else "aim, not reached"
        return "met" if met else "MISSED"

    @property
    def cells(self) -> tuple[str, ...]:
        """Figure, against, unit, median, lower quartile, rounds, goal, outcome."""
        goal, figures = self.goal, self.figures
        values = (
            (shown(figures.median), shown(figures.lower), str(len(figures.values)))
            if figures
            else ("", "", "0")
        )
        bound = f"{'<=' if goal.at_most else '>='} {shown(goal.goal)}"
        return (goal.what, goal.against, goal.shown, *values, bound, self.outcome)

    def as_json(self) -> dict[str, object]:
        goal = self.goal
        return {
            "what": goal.what,
            "against": goal.against or None,
            "unit": goal.shown,
            "goal": goal.goal,
            "at": "most" if goal.at_most else "least",
            "outcome": self.outcome,
            **(self.figures.as_json() if self.figures else {}),
        }


HEAD = ("figure", "against", "unit", "median", "lower quartile", "rounds", "goal", "")


def verdicts(measured: Measured) -> list[Verdict]:
    """Every goal, in order."""
    return [Verdict(goal, _figures(measured, goal)) for goal in GOALS]


def _figures(measured: Measured, goal: Goal) -> Figures | None:
    ours = measured.figures(goal.what, "semel", goal.unit)
    if ours is None or not goal.against or goal.unit in {"growth", "reading"}:
        return ours
    if goal.against == BEST:
        peers = [row.values for _, row in measured.rows("enqueue", goal.unit)]
        rounds = [max(values) for values in zip(*peers, strict=False)]
        theirs = Figures(tuple(rounds)) if rounds else None
    elif goal.against.startswith(("drain", "HTTP")):
        theirs = measured.figures(goal.against, "semel", goal.unit)
    else:
        theirs = measured.figures(goal.what, goal.against, goal.unit)
    return ours.over(theirs) if theirs else None


def plain(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table for a terminal."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def shown(value: float) -> str:
    """Three digits that count."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
