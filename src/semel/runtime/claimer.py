"""
Claimer: where to look for work, and how far to look.

For each queue of a (project, agent) the claimer remembers a low-water mark, the ready_at of the
last run it claimed there, and looks only from there on: the index behind a mark holds nothing but
entries of runs that have gone, which a pinned snapshot may keep by the million. A mark is a hint.
A look from the start finds what came to stand behind one (a transaction that committed late, a
retry, a clock that stepped back) and lowers the mark; it runs as often as it is cheap.

    look (from the start) ──> marks ──> claim ──> claim ──> dry ──> hint (from the marks)

A queue is a lane among the runs that our version of the agent's code began, or among those that
none did; an agent without a version has the latter only. One claim looks into both, so that what
is resumed goes first; in each lane those that have begun go ahead of those that have not.

What a limit keeps back is left out by the hint. An agent's rate that leaves nothing now is told
with how long that lasts: it is asked again then, and not before.

A wake-up names an agent. Where that agent's last run was is worth a claim before anything is
asked: most often the new one is there, and begins a round trip sooner. A look follows in any case.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from semel.core.claims import ORDINARY_LANES, run_claim, run_due, run_hint
from semel.db.stops import stop_here
from semel.model import ALONE_LANE, FREED_LANE
from semel.runtime.held import boottime

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
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


class Queue(NamedTuple):
    """Where runs of an agent wait."""

    lane: int
    fresh: bool  # no version began them; else ours did

    @property
    def own(self) -> bool:
        """Whether our version of the code began them."""
        return not self.fresh

    @property
    def turn(self) -> tuple[int, bool, bool]:
        """Its place among others: runs whose key was full go ahead of those of their priority."""
        freed = FREED_LANE <= self.lane < ALONE_LANE
        return (self.lane - FREED_LANE if freed else self.lane, not freed, self.fresh)


@dataclass(slots=True)
class Pair:
    """A (project, agent) whose runs this worker has met."""

    project: str
    agent: str
    version: str  # of our code for it; '': none
    marks: dict[Queue, datetime] = field(default_factory=dict)  # kept when it runs dry
    queues: set[Queue] = field(default_factory=set)  # where runs wait
    # While a guess is tried, the mark of queues without one: what is new cannot stand before it.
    floor: datetime | None = None
    claims: int = 0

    @property
    def ordinary(self) -> list[Queue]:
        """The queues with runs for this process, first things first."""
        found = (queue for queue in self.queues if queue.lane < ALONE_LANE)
        return sorted(found, key=lambda queue: queue.turn)

    @property
    def alone(self) -> list[Queue]:
        """The queues with runs that want a process of their own."""
        return sorted(queue for queue in self.queues if queue.lane >= ALONE_LANE)


class Claimer:
    """
    Claims for the agents of one worker, through one connection.

    Args:
        agents: By name, the version of the worker's code for each; '' for none.
    """

    def __init__(self, link: Link, agents: Mapping[str, str], lease: timedelta) -> None:
        self._link = link
        self._versions = dict(sorted(agents.items()))
        self._lease = lease
        self._pairs: dict[tuple[str, str], Pair] = {}
        self._look_at = 0.0
        self._rated_at: float | None = None  # a rate leaves something then, and nothing before
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
        if pair is None or self._guessed or any(known.queues for known in self._pairs.values()):
            return []
        self._guessed = True
        # In every ordinary lane, so that the highest goes first.
        pair.queues.update(Queue(lane, True) for lane in ORDINARY_LANES)
        if pair.version:
            pair.queues.update(Queue(lane, False) for lane in ORDINARY_LANES)
        pair.floor = max(pair.marks.values())
        return [pair]

    def rate_wait(self) -> float | None:
        """Seconds until a rate that left nothing leaves something; None: none keeps us waiting."""
        return None if self._rated_at is None else max(0.0, self._rated_at - boottime())

    async def waiting(self) -> list[Pair]:
        """The pairs that have runs now, in an order of chance."""
        if not any(pair.queues for pair in self._pairs.values()) or boottime() >= self._look_at:
            await self._find()
        return self._found()

    async def beside(self, project: str) -> list[Pair]:
        """The pairs that have runs, once the other projects that were met are asked again."""
        marks = self._marks(but=project)
        if marks:
            self._note(await self._hint(marks))
        return self._found()

    def _found(self) -> list[Pair]:
        found = [pair for pair in self._pairs.values() if pair.queues]
        random.shuffle(found)  # so that no project is always first
        return found

    def _marks(self, *, but: str = "") -> dict[tuple[str, str, str, int], datetime]:
        """How far we have come everywhere, *but* in one project."""
        return {
            (pair.project, pair.agent, pair.version if queue.own else "", queue.lane): mark
            for pair in self._pairs.values()
            if pair.project != but
            for queue, mark in pair.marks.items()
        }

    async def claim(
        self, pair: Pair, worker: str, *, limit: int, max_attempts: int, alone: bool = False
    ) -> list[Claim]:
        """Lease up to *limit* runs of *pair* to *worker*."""
        queues = pair.alone if alone else pair.ordinary
        if not queues or limit <= 0:
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
                lanes=[queue.lane for queue in queues],
                marks=[pair.marks.get(queue, pair.floor) for queue in queues],
                oldest=not alone and pair.claims % OLDEST_EVERY == 0,
                version=pair.version,
                own=[queue.own for queue in queues],
            )
        )
        self.claim_seconds_max = max(self.claim_seconds_max, boottime() - began)
        stop_here("worker.claim.after")
        answered = set()
        for claim in claims:
            queue = Queue(claim.lane, claim.version == "")
            answered.add(queue)
            pair.marks[queue] = max(claim.ready_at, pair.marks.get(queue, claim.ready_at))
        if claims and not alone:
            self._last[pair.agent] = pair
        if pair.floor is not None:
            pair.floor = None
            pair.queues.intersection_update(answered)
        if len(claims) < limit:
            pair.queues.difference_update(queues)  # dry, or the limit is reached: ask again
        return claims

    async def _find(self) -> None:
        if boottime() < self._look_at and self._pairs:
            marks = self._marks()
            if marks:
                self._note(await self._hint(marks))
            return
        began = boottime()
        hints = await self._hint()
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

    async def _hint(
        self, marks: Mapping[tuple[str, str, str, int], datetime] | None = None
    ) -> list[Hint]:
        served = self._versions
        return await self._link.run(
            run_hint(list(served), versions=list(served.values()), marks=marks)
        )

    def _note(self, hints: Iterable[Hint]) -> None:
        self._rated_at = None
        for hint in hints:
            if hint.lane is None:
                continue
            pair = self._pairs.setdefault(
                (hint.project, hint.agent),
                Pair(hint.project, hint.agent, self._versions[hint.agent]),
            )
            queue = Queue(hint.lane, hint.version == "")
            if hint.rate_wait is None:
                pair.queues.add(queue)
            else:
                rated_at = boottime() + hint.rate_wait.total_seconds()
                self._rated_at = min(self._rated_at or rated_at, rated_at)
            pair.marks[queue] = min(hint.ready_at, pair.marks.get(queue, hint.ready_at))
