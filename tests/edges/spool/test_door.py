"""Whoever is under way when the database goes keeps the place it came in."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from semel.edges.spool.door import Door
from semel.edges.spool.folder import Folder
from semel.edges.spool.record import Record, unpack
from semel.errors import BadRequest, DatabaseUnreachable
from semel.model import Accepted, Offer
from spooling import spool

GONE = DatabaseUnreachable("away")


def record(n: int) -> Record:
    offer = Offer(source="s", channel="telegram", id=str(n), agent="a", input=n, body=b"b")
    return Record(
        at=float(n),
        project="p",
        source="s",
        channel="telegram",
        parts=[[offer]],
        body=b"b",
        headers={},
    )


def new(n: int) -> list[Accepted]:
    return [Accepted(verdict="new", event_id=None, run_id=None, reason=str(n))]


async def inputs(folder: Folder) -> list[Any]:
    queue = folder.queue("p", "s")
    kept = await queue.read(queue.head(1000))
    return [unpack(plain or b"").parts[0][0].input for plain in kept]  # type: ignore[union-attr]


def test_all_under_way_are_spooled_in_their_order_when_one_finds_the_database_away(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        folder = Folder(spool(tmp_path / "spool"))
        door = Door(folder, Any, wait=1)  # type: ignore[arg-type]
        goes = asyncio.Event()

        async def hangs() -> list[Accepted]:
            await asyncio.Event().wait()
            raise AssertionError

        async def fails() -> list[Accepted]:
            await goes.wait()
            raise GONE

        async def succeeds(n: int) -> list[Accepted]:
            await goes.wait()
            return new(n)

        ways = [hangs(), succeeds(1), hangs(), fails(), hangs(), succeeds(5)]
        tasks = [asyncio.create_task(door.enter(record(n), way)) for n, way in enumerate(ways)]
        await asyncio.sleep(0.01)
        goes.set()
        told = [one[0].verdict for one in await asyncio.gather(*tasks)]
        assert [told[n] for n in (0, 2, 3, 4)] == ["spooled"] * 4
        late = await door.enter(record(6), hangs())
        assert late[0].verdict == "spooled"
        spooled = await inputs(folder)
        assert spooled == sorted(spooled)
        assert {0, 2, 3, 4, 6} <= set(spooled)
        assert spooled[-1] == 6
        await folder.close()

    asyncio.run(story())


def test_what_the_sender_must_mend_is_told_and_not_spooled(tmp_path: Path) -> None:
    async def refused() -> list[Accepted]:
        raise BadRequest("no")

    async def story() -> None:
        folder = Folder(spool(tmp_path / "spool"))
        door = Door(folder, Any, wait=1)  # type: ignore[arg-type]
        with pytest.raises(BadRequest, match="no"):
            await door.enter(record(1), refused())
        assert not folder.queue("p", "s").is_open
        await folder.close()

    asyncio.run(story())
