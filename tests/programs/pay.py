"""
Pay once: `pay.py DRIVER KEY` inserts into public.paid under the key and prints what it answers.

With a third word the payment is refused, after it was written.
"""

import asyncio
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from ways import WAYS


async def main(driver: str, key: str, *refused: str) -> None:
    [way] = [way for way in WAYS if way.name == driver]

    async with way.open(os.environ["SEMEL_DSN"]) as conn:
        async with way.once(conn, key=key) as op:
            if op.replay is None:
                await way.execute(conn, "insert into public.paid values (%s)", key)
                op.journal("paid", {"key": key})
                op.reply({"key": key, "attempt": op.attempts})
                if refused:
                    raise ValueError(refused[0])
        sys.stdout.buffer.write(op.response().body)


asyncio.run(main(*sys.argv[1:]))
