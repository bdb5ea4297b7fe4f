"""
Claimer: where to look for work, and how far to look.

For each lane of a (project, agent) the claimer remembers a low-water mark, the ready_at of the
last run it claimed there, and looks only from there on: the index behind a mark holds nothing but
entries of runs that have gone, which a pinned snapshot may keep by the million. A mark is a hint.
A look from the start finds what came to stand behind one (a transaction that committed late, a
retry, a clock that stepped back) and lowers the mark; it runs as often as it is cheap.

    look (from the start) ──> marks ──> claim ──> claim ──> dry ──> hint (from the marks)

A wake-up names an agent. Where that agent's last run was is worth a claim before anything is
asked: most often the new one is there, and begins a round trip sooner. A look follows in any case.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from semel.core.claims import ORDINARY_LANES, run_claim, run_due, run_hint
from semel.db.stops import stop_here
from semel.model import ALONE_LANE
from semel.runtime.held import boottime

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime, timedelta

    from semel.db.link import Link
    from semel.model import Claim, Hint

#: A look from the start comes this often at most, sooner only after a wake-up, and as seldom as its
#: cost asks.
LOOK_SECONDS_MIN = 0.2
LOOK_SECONDS_MAX = 10.0
LOOK_COSTS = 20
#: Every so many claims of a pair, the run that waits longest goes first, whatever its priority.
OLDEST_EVERY = 8


@dataclass(slots=True)
class Pair:
    """A (project, agent) whose runs this worker has met."""

    project: str
    agent: str
    marks: dict[int, datetime] = field(default_factory=dict)  # by lane; kept when it runs dry
    lanes: set[int] = field(default_factory=set)  # where runs wait
    # While a guess is tried, the mark of lanes without one: what is new cannot stand before it.
    floor: datetime | None = None
    claims: int = 0

    @property
    def ordinary(self) -> list[int]:
        """The lanes with runs for this process, first things first."""
        return sorted(lane for lane in self.lanes if lane < ALONE_LANE)

    @property
    def alone(self) -> list[int]:
        """The lanes with runs that want a process of their own."""
        return sorted(lane for lane in self.lanes if lane >= ALONE_LANE)


class Claimer:
    """Claims for the agents of one worker, through one connection."""

    def __init__(self, link: Link, agents: Iterable[str], lease: timedelta) -> None:
        self._link = link
        self._agents = sorted(agents)
        self._lease = lease
        self._pairs: dict[tuple[str, str], Pair] = {}
        self._look_at = 0.0
        self._cheap_at = 0.0  # from here on a look costs no more than its share of the time
        self._last: dict[str, Pair] = {}  # by agent, where its last claimed run was
        self._guess: Pair | None = None
        self._guessed = False  # since the last look; a second one before it would starve others
        self.look_seconds = 0.0  # what looks from the start have cost so far
        self.claim_seconds_max = 0.0  # the longest claim so far

    def wake(self, agent: str = "") -> None:
        """Somebody said there is work, for *agent* or for anyone: look as soon as it is cheap."""
        self._look_at = self._cheap_at
        self._guess = self._last.get(agent)

    def guessed(self) -> list[Pair]:
        """Where to claim after a wake-up before anything is asked; once, then a look is due."""
        pair, self._guess = self._guess, None
        if pair is None or self._guessed or any(known.lanes for known in self._pairs.values()):
            return []
        self._guessed = True
        # In every ordinary lane, so that the highest goes first.
        pair.lanes.update(ORDINARY_LANES)
        pair.floor = max(pair.marks.values())
        return [pair]

    async def waiting(self) -> list[Pair]:
        """The pairs that have runs now, in an order of chance."""
        if not any(pair.lanes for pair in self._pairs.values()) or boottime() >= self._look_at:
            await self._find()
        found = [pair for pair in self._pairs.values() if pair.lanes]
        random.shuffle(found)  # so that no project is always first
        return found

    async def claim(
        self, pair: Pair, worker: str, *, limit: int, max_attempts: int, alone: bool = False
    ) -> list[Claim]:
        """Lease up to *limit* runs of *pair* to *worker*."""
        lanes = pair.alone if alone else pair.ordinary
        if not lanes or limit <= 0:
            return []
        pair.claims += not alone
        stop_here("worker.claim.before")
        began = boottime()
        claims = await self._link.run(
            run_claim(
                pair.project,
                pair.agent,
                worker,
                limit=limit,
                lease=self._lease,
                max_attempts=max_attempts,
                lanes=lanes,
                marks=[pair.marks.get(lane, pair.floor) for lane in lanes],
                oldest=not alone and pair.claims % OLDEST_EVERY == 0,
            )
        )
        self.claim_seconds_max = max(self.claim_seconds_max, boottime() - began)
        stop_here("worker.claim.after")
        for claim in claims:
            pair.marks[claim.lane] = max(
                claim.ready_at, pair.marks.get(claim.lane, claim.ready_at)
            )
        if claims and not alone:
            self._last[pair.agent] = pair
        if pair.floor is not None:
            pair.floor = None
            pair.lanes.intersection_update([claim.lane for claim in claims])
        if len(claims) < limit:
            pair.lanes.difference_update(lanes)  # dry, or the limit is reached: ask again
        return claims

    async def _find(self) -> None:
        if boottime() < self._look_at and self._pairs:
            marks = {
                (pair.project, pair.agent, lane): mark
                for pair in self._pairs.values()
                for lane, mark in pair.marks.items()
            }
            if marks:
                self._note(await self._link.run(run_hint(self._agents, marks=marks)))
            return
        began = boottime()
        hints = await self._link.run(run_hint(self._agents))
        cost = boottime() - began
        self.look_seconds += cost
        self._guessed = False
        self._cheap_at = boottime() + min(LOOK_COSTS * cost, LOOK_SECONDS_MAX)
        self._look_at = max(self._cheap_at, boottime() + LOOK_SECONDS_MIN)
        self._note(hints)
        due = {(hint.project, hint.agent) for hint in hints if hint.lane is None}
        for project, agent in due:
            if await self._link.run(run_due(project, agent)):
                self.wake()

    def _note(self, hints: Iterable[Hint]) -> None:
        for hint in hints:
            if hint.lane is None:
                continue
            pair = self._pairs.setdefault(
                (hint.project, hint.agent), Pair(project=hint.project, agent=hint.agent)
            )
            pair.lanes.add(hint.lane)
            pair.marks[hint.lane] = min(hint.ready_at, pair.marks.get(hint.lane, hint.ready_at))
