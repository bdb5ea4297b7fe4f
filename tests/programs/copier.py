"""
Copies a journal: `copier.py exactly` in its own transaction, `copier.py at-least` outside of it.

Each copy is a row of public.copied; at-least commits it by itself, before it commits the cursor.
"""

import asyncio
import os
import sys
from datetime import timedelta
from typing import Any

import psycopg

from semel.journal import Consumer, Entry

INSERT = "insert into public.copied (seq, word, pid) values (%s, %s, %s)"


async def put(conn: Any, entry: Entry) -> None:
    await conn.execute(INSERT, (entry.seq, entry.payload, os.getpid()))


async def exactly(reader: Consumer) -> None:
    while True:
        async with reader.batch() as batch:
            for entry in batch:
                await put(batch.connection, entry)


async def at_least(reader: Consumer) -> None:
    async with await psycopg.AsyncConnection.connect(
        os.environ["SEMEL_DSN"], autocommit=True
    ) as conn:
        async for entries in reader:
            for entry in entries:
                await put(conn, entry)


async def main(how: str) -> None:
    reader = Consumer(
        os.environ["SEMEL_DSN"],
        project="p",
        name="copier",
        limit=5,
        poll=timedelta(milliseconds=20),
        lease=timedelta(seconds=1),
    )
    async with reader:
        await (exactly(reader) if how == "exactly" else at_least(reader))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
