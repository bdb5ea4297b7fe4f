"""
Relays a project's journal to a Redis stream: each entry once, in its order.

    export SEMEL_DSN=postgresql:///shop REDIS_URL=redis://localhost
    python examples/journal_to_redis.py shop

Reading is at least once, since Redis takes no part in PostgreSQL's transaction: the relay may die
between the two. The entry's seq is what makes it once: it is the id of the message, and Redis
refuses an id that is not larger than the last. Start as many relays as you like.

Redis is told, never asked: the journal stays the truth. A Redis that came back with less than it
had, after a crash or a failover, is given the rest again by the next relay that starts, as far back
as the journal is kept.
"""

import asyncio
import os
import sys
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from semel.journal import Consumer, CursorLost, Entry

REFUSED = "The ID specified in XADD is equal or smaller"


async def put(redis: Any, stream: str, entry: Entry) -> bool:
    """Add *entry*; False where it is in the stream already."""
    at = f"{entry.seq}-0"
    message = {
        "id": str(entry.id),
        "topic": entry.topic,
        "payload": entry.text,
        "request": entry.request_id or "",
    }
    try:
        await redis.xadd(stream, message, id=at)
    except ResponseError as refused:
        if REFUSED not in str(refused):
            raise
        # Another entry under this seq: PostgreSQL came back with less than it had, not Redis.
        for _, known in await redis.xrange(stream, at, at):
            if known[b"id"] != message["id"].encode():
                raise RuntimeError(
                    f"{stream} has another entry {at}: begin a new one"
                ) from None
        return False
    return True


async def last(redis: Any, stream: str) -> int:
    """The seq that *stream* has come to."""
    if not await redis.exists(stream):
        return 0
    told = (await redis.xinfo_stream(stream))["last-generated-id"]
    return int(told.partition(b"-")[0])


async def relay(consumer: Consumer, redis: Any, stream: str) -> None:
    """Relay until cancelled."""
    if await last(redis, stream) < consumer.place:
        reached = await consumer.seek(await last(redis, stream))
        print(f"{stream} has lost messages: again from {reached}", flush=True)
    while True:
        try:
            async for entries in consumer:
                for entry in entries:
                    await put(redis, stream, entry)
        except CursorLost:
            continue  # another relay went on from here; Redis has refused what came twice


async def main(project: str) -> None:
    stream = f"journal:{project}"
    async with (
        Redis.from_url(os.environ["REDIS_URL"]) as redis,
        Consumer(os.environ["SEMEL_DSN"], project=project, name="redis") as consumer,
    ):
        await relay(consumer, redis, stream)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
