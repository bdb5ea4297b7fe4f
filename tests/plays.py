"""Scenes around one run: every order of a few calls is played, and checked by what was answered."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from fix_world import Conn
from schedules import Calls, Did, every_schedule


@dataclass
class Play:
    """What there is, and what its actors were answered."""

    run_id: UUID
    fence: int
    said: dict[str, Any]

    @classmethod
    def over(cls, conn: Conn, done: list[Did]) -> "Play":
        [(run_id, fence)] = conn.execute(
            "select run_id, fence from semel.runs where kind = 'work' and agent = 'a' and attempt_count > 0"
        ).fetchall()
        return cls(run_id, fence, {did.name: did.answer for did in done})


Scene = Callable[[Conn], dict[str, Calls]]
Check = Callable[[Conn, Play], None]


def does(name: str, work: Callable[[Conn], Any]) -> Calls:
    return [(name, work)]


def every_order(dsn: str, conn: Conn, scene: Scene, check: Check) -> None:
    """Play *scene* in every order; *check* says what holds after each."""
    count = 0
    for schedule, done, _ in every_schedule(dsn, conn, scene, lambda _: None):
        try:
            check(conn, Play.over(conn, done))
        except (AssertionError, KeyError) as wrong:
            wrong.add_note(f"in the schedule {schedule}: {done}")
            raise
        count += 1
    assert count >= 4
