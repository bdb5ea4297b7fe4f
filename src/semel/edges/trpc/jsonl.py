"""
Streams: answers of a batch, each sent when it is there.

Version 11 reads lines. The head has a place for each call; what a place stands for follows in a
chunk of its number, and may have places of its own:

    {"0":[[0],[null,0,0]]}                call 0 is promised as chunk 0
    [0,0,[[{"result":0}],["result",0,1]]] chunk 0 is fulfilled; its result is promised as chunk 1
    [3,1,[["a"]]]                         chunk 3 yields "a"; status 0 ends it, 2 is an error

Version 10 reads one object, whose members come in the order in which the calls end.

Source: @trpc/server 11.25.2, stream/jsonl.ts; 10.45.4, http/batchStreamFormatter.ts.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from semel.edges.trpc.answers import Done, Live, Streamed, whole
from semel.edges.trpc.errors import TRPCError, of
from semel.edges.trpc.values import UNDEFINED

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Sequence

    from semel.edges.trpc.answers import Outcome, Writer
    from semel.edges.trpc.transformer import Dumped

_PROMISE, _ITERABLE = 0, 1
_FULFILLED, _REJECTED = 0, 1
_RETURN, _YIELD, _ERROR = 0, 1, 2
#: Lines that wait for a slow client; what makes them waits then.
WAITING_MAX = 64


async def lines(
    calls: Sequence[asyncio.Task[Outcome]], paths: Sequence[str], writer: Writer
) -> AsyncGenerator[str, None]:
    """The lines that version 11 reads."""
    stream = _Stream(writer)
    head = ",".join(
        f'"{index}":[[0],[null,{_PROMISE},{stream.call(call, path)}]]'
        for index, (call, path) in enumerate(zip(calls, paths, strict=True))
    )
    yield f"{writer.transformer.line(f'{{{head}}}', [])}\n"
    try:
        while (line := await stream.next()) is not None:
            yield f"{line}\n"
    finally:
        await stream.close()


async def members(
    calls: Sequence[asyncio.Task[Outcome]], paths: Sequence[str], writer: Writer
) -> AsyncGenerator[str, None]:
    """The object that version 10 reads, member by member."""
    before = "{"
    places = {call: index for index, call in enumerate(calls)}
    left = set(calls)
    while left:
        done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        for call in sorted(done, key=places.__getitem__):
            index = places[call]
            envelope = writer.envelope(whole(call.result()), paths[index])
            yield f'{before}"{index}":{envelope}\n'
            before = ","
    yield "}"


class _Stream:
    """The chunks of one answer: tasks that make lines, and the lines that wait to be sent."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._chunks = 0
        self._making = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._lines: asyncio.Queue[str | None] = asyncio.Queue(WAITING_MAX)

    async def next(self) -> str | None:
        """The next line; None after the last one."""
        return await self._lines.get()

    async def close(self) -> None:
        """Stop whatever still makes lines; the calls themselves go on."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def call(self, call: asyncio.Task[Outcome], path: str) -> int:
        """The chunk that *call* is promised as."""
        return self._add(lambda chunk: self._called(chunk, call, path))

    def _add(self, make: Any) -> int:
        chunk = self._chunks
        self._chunks += 1
        self._begin(make(chunk))
        return chunk

    def _begin(self, making: Coroutine[Any, Any, None]) -> None:
        self._making += 1
        self._tasks.append(asyncio.create_task(self._made(making)))

    async def _made(self, making: Coroutine[Any, Any, None]) -> None:
        await making
        self._making -= 1
        if not self._making:
            await self._lines.put(None)

    async def _called(self, chunk: int, call: asyncio.Task[Outcome], path: str) -> None:
        outcome = await asyncio.shield(call)
        if isinstance(outcome, TRPCError):
            shape = self._writer.shape(outcome, path)
            await self._put(chunk, _FULFILLED, f"[[{self._writer.failure(shape, outcome)}]]")
            return
        # As version 11 nests it: the call, its result, its data.
        result, data = self._chunks, self._chunks + 1
        self._chunks += 2
        marker = "" if isinstance(outcome, Live) or not outcome.replayed else ',"replayed":true'
        await self._put(chunk, _FULFILLED, f'[[{{"result":0}}],["result",{_PROMISE},{result}]]')
        await self._put(
            result, _FULFILLED, f'[[{{"data":0{marker}}}],["data",{_PROMISE},{data}]]'
        )
        if isinstance(outcome, Done):
            await self._dumped(data, _FULFILLED, outcome.data)
        elif isinstance(outcome, Streamed):
            inner = self._add(lambda chunk: self._streamed(chunk, outcome))
            await self._put(data, _FULFILLED, f"[[0],[null,{_ITERABLE},{inner}]]")
        else:
            await self._awaited(data, outcome.value, path)

    async def _streamed(self, chunk: int, outcome: Streamed) -> None:
        for item in outcome.items:
            await self._dumped(chunk, _YIELD, item)
        await self._dumped(chunk, _RETURN, outcome.end)

    async def _value(self, chunk: int, status: int, value: Any, path: str) -> None:
        """A value of a query, with places for its parts that are still to come."""
        whole_place = self._place(value, path)
        if whole_place is not None:
            await self._put(chunk, status, f"[[0],[null,{whole_place}]]")
            return
        places = ""
        if isinstance(value, dict):
            kept = {}
            for name, member in value.items():
                place = self._place(member, path)
                kept[name] = member if place is None else 0
                if place is not None:
                    places += f",[{self._text(name)},{place}]"
            value = kept
        await self._dumped(chunk, status, self._writer.transformer.dump(value), places)

    def _place(self, value: Any, path: str) -> str | None:
        if inspect.isawaitable(value):
            return f"{_PROMISE},{self._add(lambda chunk: self._awaited(chunk, value, path))}"
        if hasattr(value, "__aiter__"):
            return f"{_ITERABLE},{self._add(lambda chunk: self._iterated(chunk, value, path))}"
        return None

    async def _awaited(self, chunk: int, value: Any, path: str) -> None:
        try:
            known = await value if inspect.isawaitable(value) else value
            await self._value(chunk, _FULFILLED, known, path)
        except Exception as error:  # noqa: BLE001 - whatever a query raises late is its answer
            await self._failed(chunk, _REJECTED, error, path)

    async def _iterated(self, chunk: int, value: Any, path: str) -> None:
        """Each item, then what it returned: StopAsyncIteration may carry that."""
        iterator = aiter(value)
        try:
            while True:
                try:
                    item = await anext(iterator)
                except StopAsyncIteration as stop:
                    last = stop.args[0] if stop.args else UNDEFINED
                    await self._value(chunk, _RETURN, last, path)
                    return
                await self._value(chunk, _YIELD, item, path)
        except Exception as error:  # noqa: BLE001 - whatever a query raises late is its answer
            await self._failed(chunk, _ERROR, error, path)
        finally:
            if hasattr(iterator, "aclose"):
                await iterator.aclose()

    async def _failed(self, chunk: int, status: int, error: Exception, path: str) -> None:
        await self._line(chunk, status, self._writer.shape(of(error), path), [])

    async def _dumped(self, chunk: int, status: int, dumped: Dumped, places: str = "") -> None:
        if dumped.json is None:
            await self._line(chunk, status, "[[]]", [])
            return
        annotations = [] if dumped.meta is None else [("2.0.0", dumped.meta)]
        await self._line(chunk, status, f"[[{dumped.json}]{places}]", annotations)

    async def _put(self, chunk: int, status: int, text: str) -> None:
        await self._line(chunk, status, text, [])

    async def _line(
        self, chunk: int, status: int, text: str, annotations: list[tuple[str, Any]]
    ) -> None:
        line = f"[{chunk},{status},{text}]"
        await self._lines.put(self._writer.transformer.line(line, annotations))

    def _text(self, name: Any) -> str:
        return self._writer.transformer.dump(name).json or '""'
