"""The claimer: what a wake-up makes it ask, and how seldom it looks from the start."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fix_world import LEASE, Conn, start_run
from semel.core.call import Call
from semel.db.link import Link
from semel.model import Claim
from semel.runtime import claimer as under_test
from semel.runtime.claimer import LOOK_COSTS, LOOK_SECONDS_MAX, Claimer, Pair


class Asked(Link):
    """A connection that notes what was asked; a look from the start takes *cost* of its clock."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn, name="test")
        self.asked: list[str] = []
        self.now = 1000.0
        self.cost = 0.001

    async def run(self, call: Call[Any]) -> Any:
        what = call.sql.partition("semel.")[2].partition("(")[0]
        if what == "run_hint" and len(call.args) <= 3:
            what = "look"
            self.now += self.cost
        self.asked.append(what)
        return await super().run(call)


@pytest.fixture
def link(dsn: str, monkeypatch: pytest.MonkeyPatch) -> Asked:
    asked = Asked(dsn)
    monkeypatch.setattr(under_test, "boottime", lambda: asked.now)
    return asked


def working(link: Asked, test: Callable[[Claimer], Awaitable[None]]) -> None:
    """Run *test* with a claimer for two agents."""

    async def go() -> None:
        try:
            await test(Claimer(link, {"a": "", "b": ""}, LEASE))
        finally:
            await link.close()

    asyncio.run(go())


async def claim(claimer: Claimer, pairs: list[Pair], limit: int = 10) -> list[Claim]:
    return [
        claim
        for pair in pairs
        for claim in await claimer.claim(pair, "w", limit=limit, max_attempts=3)
    ]


async def worked(claimer: Claimer, link: Asked) -> None:
    """It has claimed all there was, and looked again."""
    assert await claim(claimer, await claimer.waiting())
    link.now += LOOK_SECONDS_MAX
    assert [] == await claimer.waiting()
    link.asked.clear()


def test_a_wake_up_is_answered_by_a_claim_before_anything_is_asked(
    link: Asked, conn: Conn
) -> None:
    async def test(claimer: Claimer) -> None:
        start_run(conn)
        await worked(claimer, link)

        low, high = start_run(conn, priority=2), start_run(conn, priority=8)
        claimer.wake("a")
        claims = await claim(claimer, claimer.guessed())

        assert [high, low] == [claim.run_id for claim in claims]
        assert ["run_claim"] == link.asked

    working(link, test)


def test_one_guess_is_followed_by_a_look_so_that_nobody_starves(
    link: Asked, conn: Conn
) -> None:
    async def test(claimer: Claimer) -> None:
        start_run(conn)
        await worked(claimer, link)

        elsewhere = start_run(conn, project="other")
        for _ in range(2):
            start_run(conn)
        claimer.wake("a")
        assert 1 == len(await claim(claimer, claimer.guessed(), limit=1))
        claimer.wake("a")
        assert [] == claimer.guessed()
        link.now += LOOK_SECONDS_MAX
        pairs = await claimer.waiting()

        assert {"p", "other"} == {pair.project for pair in pairs}
        assert elsewhere in {claim.run_id for claim in await claim(claimer, pairs)}
        assert [] == claimer.guessed()

    working(link, test)


@pytest.mark.parametrize("agent", ["b", ""])
def test_where_no_run_of_an_agent_was_met_nothing_is_guessed(
    link: Asked, conn: Conn, agent: str
) -> None:
    async def test(claimer: Claimer) -> None:
        start_run(conn)
        await worked(claimer, link)

        claimer.wake(agent)

        assert [] == claimer.guessed()

    working(link, test)


def test_wake_ups_make_no_dear_look_more_frequent(link: Asked, conn: Conn) -> None:
    """As when a pinned snapshot keeps a million dead entries: a look has its share of the time."""

    async def test(claimer: Claimer) -> None:
        start_run(conn)
        link.cost = 0.1
        await worked(claimer, link)

        for _ in range(100):
            claimer.wake("b")
            await claimer.waiting()
            link.now += 0.1

        looks = 100 * 0.1 / (link.cost * (LOOK_COSTS + 1))
        assert link.asked.count("look") == pytest.approx(looks, abs=1)
        assert link.asked.count("run_hint") == 100 - link.asked.count("look")

    working(link, test)
