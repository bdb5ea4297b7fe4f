"""What arrives together is sent together; what nobody waits for any more is not sent at all."""

import asyncio
from collections.abc import Sequence

from semel.db.gather import Gather


class Door:
    """Batches that wait until it is opened, and what became of them."""

    def __init__(self, *bad: str) -> None:
        self.sent: list[list[str]] = []
        self.opened = asyncio.Event()
        self._bad = bad

    async def send(self, items: Sequence[str]) -> list[str]:
        self.sent.append(list(items))
        await self.opened.wait()
        if any(item in self._bad for item in items):
            raise ValueError(items[0])
        return [item.upper() for item in items]


async def begun(gather: Gather[str, str], *items: str) -> list[asyncio.Task[str]]:
    """Callers of *items*, each of whom waits."""
    tasks = [asyncio.create_task(gather.add(item)) for item in items]
    for _ in range(3):
        await asyncio.sleep(0)
    return tasks


def test_what_arrives_meanwhile_makes_the_next_batch() -> None:
    async def go() -> None:
        door = Door()
        gather = Gather(door.send, batch_max=2)
        first = await begun(gather, "a")
        others = await begun(gather, "b", "c", "d")
        door.opened.set()
        assert await asyncio.gather(*first, *others) == ["A", "B", "C", "D"]
        assert door.sent == [["a"], ["b", "c"], ["d"]]

    asyncio.run(go())


def test_an_item_whose_caller_went_before_it_was_sent_is_never_sent() -> None:
    async def go() -> None:
        door = Door()
        gather = Gather(door.send)
        first = await begun(gather, "a")
        gone, there = await begun(gather, "b", "c")
        gone.cancel()
        await asyncio.wait([gone])
        door.opened.set()
        assert await asyncio.gather(*first, there) == ["A", "C"]
        assert door.sent == [["a"], ["c"]]

    asyncio.run(go())


def test_an_item_whose_caller_went_while_its_batch_failed_is_not_sent_again() -> None:
    async def go() -> None:
        door = Door("bad")
        gather = Gather(door.send)
        gone, bad, there = await begun(gather, "b", "bad", "c")
        gone.cancel()
        door.opened.set()
        answers = await asyncio.gather(bad, there, return_exceptions=True)
        assert [str(answers[0]), answers[1]] == ["bad", "C"]
        assert door.sent == [["b", "bad", "c"], ["bad"], ["c"]]

    asyncio.run(go())


def test_items_that_share_a_name_go_in_successive_batches_in_their_order() -> None:
    async def go() -> None:
        door = Door()
        gather = Gather(door.send, names=set)
        first = await begun(gather, "x")
        others = await begun(gather, "a", "ab", "b", "c")
        door.opened.set()
        await asyncio.gather(*first, *others)
        # b shares nothing with a, but must not overtake ab.
        assert door.sent == [["x"], ["a", "c"], ["ab"], ["b"]]

    asyncio.run(go())


def test_what_shares_a_name_with_one_that_is_sent_alone_waits_behind_it() -> None:
    async def go() -> None:
        door = Door("ab")
        held = asyncio.Event()

        async def alone(item: str) -> str:
            await held.wait()
            return item

        gather = Gather(door.send, alone=alone, again=lambda _: True, names=set)
        door.opened.set()
        slow = await begun(gather, "ab")
        behind = await begun(gather, "b")
        free = await begun(gather, "c")
        assert await free[0] == "C"
        assert not slow[0].done()
        assert not behind[0].done()
        held.set()
        assert await asyncio.gather(*slow, *behind) == ["ab", "b"]
        assert door.sent == [["ab"], ["c"]]

    asyncio.run(go())


def test_two_ways_part_what_waits_and_go_side_by_side() -> None:
    async def go() -> None:
        door = Door()
        gather = Gather(door.send, ways=2)
        callers = await begun(gather, *"abcdefghij")
        assert door.sent == [list("abcde"), list("fghij")]
        later = await begun(gather, "k")
        assert len(door.sent) == 2
        door.opened.set()
        assert await asyncio.gather(*callers, *later) == list("ABCDEFGHIJK")
        assert door.sent[2:] == [["k"]]

    asyncio.run(go())


def test_few_are_not_parted_though_two_ways_are_free() -> None:
    async def go() -> None:
        door = Door()
        gather = Gather(door.send, ways=2)
        callers = await begun(gather, *"abcd")
        others = await begun(gather, "e")
        assert door.sent == [list("abcd"), ["e"]]
        door.opened.set()
        assert await asyncio.gather(*callers, *others) == list("ABCDE")

    asyncio.run(go())


def test_a_name_that_is_on_its_way_is_in_no_other_batch() -> None:
    async def go() -> None:
        door = Door()
        gather = Gather(door.send, names=lambda item: item[0], ways=2)
        first = await begun(gather, "a1")
        others = await begun(gather, "a2", "b1")
        assert door.sent == [["a1"], ["b1"]]
        door.opened.set()
        assert await asyncio.gather(*first, *others) == ["A1", "A2", "B1"]
        assert door.sent[2:] == [["a2"]]

    asyncio.run(go())
