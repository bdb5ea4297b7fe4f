"""Every order in which a few actors can do a few calls, each call in a transaction of its own.

An actor has two moves for a call: execute it, which may block, and commit. Between any two moves
any other actor may come. A blocked actor has no move until whoever blocks it has committed; what
blocks whom is asked of the database, so no order depends on how fast anything is.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, TypeVar

from fix_world import Conn
from modelling import NIGHTLY, empty
from semel.db.pool import connect

Work = Callable[[Conn], Any]
Calls = list[tuple[str, Work]]
Scene = Callable[[Conn], dict[str, Calls]]
T = TypeVar("T")
Schedule = tuple[int, ...]  # which actor moves, one after the other

#: A larger space is sampled.
AT_MOST = 5000 if NIGHTLY else 600
#: A deadlock is an error of the test: it is to be seen soon.
_DEADLOCK_TIMEOUT = "set deadlock_timeout = '30ms'"
_PATIENCE_SECONDS = 10.0


class Did(NamedTuple):
    """A call that an actor finished, and what it was answered."""

    actor: str
    name: str
    answer: Any


class Played(NamedTuple):
    """One schedule: who moved, who else could have, and what was answered."""

    schedule: Schedule
    choices: list[list[int]]
    done: list[Did]


class Actor:
    """A connection with its calls; at most one of them is under way."""

    def __init__(self, name: str, dsn: str, pool: ThreadPoolExecutor) -> None:
        self.name = name
        self._conn = connect(dsn)
        self._conn.execute(_DEADLOCK_TIMEOUT)
        self._conn.autocommit = False
        self.pid = self._conn.info.backend_pid
        self._pool = pool
        self._calls: Calls = []
        self.running: Future[Any] | None = None
        self._open = False  # executed, not yet committed

    def begin(self, calls: Sequence[tuple[str, Work]]) -> None:
        self._calls = list(calls)

    @property
    def idle(self) -> bool:
        """It holds its locks and waits for its next move."""
        return self._open and self.running is None

    @property
    def has_move(self) -> bool:
        return self.running is None and (self._open or bool(self._calls))

    def move(self) -> None:
        if self._open:
            self._conn.commit()
            self._open = False
        else:
            self._open = True
            self.running = self._pool.submit(self._calls[0][1], self._conn)

    def finish(self) -> Did:
        """Take the answer of the call that has returned."""
        assert self.running
        answer = self.running.result()
        self.running = None
        name, _ = self._calls.pop(0)
        return Did(self.name, name, answer)

    def close(self) -> None:
        self._conn.close()


class Stage:
    """Plays schedules of some actors, each from a fresh scene."""

    def __init__(self, actors: Sequence[Actor], watcher: Conn) -> None:
        self._actors = actors
        self._watcher = watcher

    def play(self, plan: Sequence[int], calls: Sequence[Calls]) -> Played:
        """Follow *plan* as far as it goes, then always the first actor that has a move."""
        done: list[Did] = []
        taken: list[int] = []
        choices: list[list[int]] = []
        for actor, own in zip(self._actors, calls, strict=True):
            actor.begin(own)
        while movable := [n for n, actor in enumerate(self._actors) if actor.has_move]:
            at = len(taken)
            choice = plan[at] if at < len(plan) else movable[0]
            assert choice in movable, "a schedule played before is not the same again"
            choices.append(movable)
            taken.append(choice)
            self._actors[choice].move()
            done += self._settle()
        assert not any(actor.running for actor in self._actors), "they wait for each other"
        return Played(tuple(taken), choices, done)

    def _settle(self) -> list[Did]:
        """Wait until every call under way has returned, or waits for someone who is idle."""
        done = []
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            under_way = [actor for actor in self._actors if actor.running]
            finished = [actor for actor in under_way if actor.running and actor.running.done()]
            done += [actor.finish() for actor in finished]
            if len(finished) == len(under_way) or (not finished and self._all_stuck(under_way)):
                return done
        raise AssertionError("a call neither returned nor waits for another actor")

    def _all_stuck(self, under_way: Sequence[Actor]) -> bool:
        pids = [actor.pid for actor in under_way]
        found = self._watcher.execute(
            "select pid, pg_blocking_pids(pid) from unnest(%s::int[]) as pid", (pids,)
        )
        waits = {pid: set(blockers) for pid, blockers in found}
        stuck = {actor.pid for actor in self._actors if actor.idle}
        grew = True
        while grew:
            more = {pid for pid, blockers in waits.items() if blockers & stuck} - stuck
            grew = bool(more)
            stuck |= more
        return set(pids) <= stuck


@contextmanager
def stage(dsn: str, watcher: Conn, names: Sequence[str]) -> Iterator[Stage]:
    """Actors of these *names*, each with a connection, for any number of schedules."""
    with ExitStack() as opened:
        pool = opened.enter_context(ThreadPoolExecutor(len(names)))
        actors = [Actor(name, dsn, pool) for name in names]
        for actor in actors:
            opened.callback(actor.close)
        yield Stage(actors, watcher)


def explore(
    play: Callable[[Sequence[int]], Played], *, at_most: int
) -> Iterator[tuple[Schedule, list[Did]]]:
    """
    Play every schedule once; of a space larger than *at_most*, that many drawn by chance.

    The chance is the same each time. *play* sets the scene and follows a plan.
    """
    ahead: list[tuple[int, ...]] = [()]
    for count in range(at_most):
        if not ahead:
            return
        # Depth first while the space may be small; a random branch once it is seen to be large.
        at = (
            len(ahead) - 1
            if count < at_most // 2
            else random.Random(count).randrange(len(ahead))
        )
        plan = ahead.pop(at)
        played = play(plan)
        for depth in range(len(plan), len(played.schedule)):
            ahead += [
                (*played.schedule[:depth], other)
                for other in played.choices[depth]
                if other != played.schedule[depth]
            ]
        yield played.schedule, played.done


def every_schedule(
    dsn: str, conn: Conn, scene: Scene, before: Callable[[Conn], T]
) -> Iterator[tuple[Schedule, list[Did], T]]:
    """
    Play *scene* in every order; the database is as each of them left it.

    Args:
        scene: Makes what is there, anew for each schedule, and says who does what.
        before: What to remember of the scene before anyone moved.
    """
    empty(conn)
    with stage(dsn, conn, list(scene(conn))) as actors:
        remembered: list[T] = []

        def play(plan: Sequence[int]) -> Played:
            empty(conn)
            calls = list(scene(conn).values())
            remembered.append(before(conn))
            return actors.play(plan, calls)

        for schedule, done in explore(play, at_most=AT_MOST):
            yield schedule, done, remembered.pop()
