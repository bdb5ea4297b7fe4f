"""
Segment: one file of a spool, as bytes. Nothing here opens a file.

    header   magic, the segment's id, the name of its key, a checksum; then how far it was
             acknowledged, with a checksum of its own, written over each time
    frame    marker, seq, size, a checksum of all three and of what follows, a sealed record

A crash leaves any part of what was not synced yet. So bad bytes at or behind the acknowledged end
are a record that nobody was told of, and are cut; before it they are damage, which is never passed
over in silence. Behind bad bytes reading goes on at the next frame whose checksum is right.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Iterator

MAGIC = b"SEMEL-SPOOL-1\n\0\0"
_HEAD = struct.Struct(">16s16s8s")
_SUM = struct.Struct(">I")
_ACKNOWLEDGED = struct.Struct(">Q")
#: Where the acknowledged end stands, and where the first frame begins.
ACKNOWLEDGED_AT = _HEAD.size + _SUM.size
BEGIN = 64

MARKER = b"\xf5sr\n"
_FRAME = struct.Struct(">4sQII")
FRAME_BYTES = _FRAME.size


class Header(NamedTuple):
    """What a segment says of itself."""

    segment: UUID | None  # None: unreadable, and so is the key's name
    key: bytes
    acknowledged: int | None  # None: unreadable, so everything counts as acknowledged


class Frame(NamedTuple):
    """A frame whose checksum is right."""

    offset: int
    size: int  # of all of it
    seq: int
    closed: bytes


class Gap(NamedTuple):
    """Bytes that are no frame."""

    offset: int
    end: int


def header(segment: UUID, key: bytes) -> bytes:
    """The beginning of a file that nobody was told of yet."""
    head = _HEAD.pack(MAGIC, segment.bytes, key)
    return (head + _SUM.pack(crc32(head)) + acknowledged(BEGIN)).ljust(BEGIN, b"\0")


def acknowledged(end: int) -> bytes:
    """What stands at ACKNOWLEDGED_AT once everything before *end* may be answered for."""
    told = _ACKNOWLEDGED.pack(end)
    return told + _SUM.pack(crc32(told))


def read_header(data: bytes) -> Header:
    """What *data*, a file or its beginning, says of itself."""
    segment, key, end = None, b"", None
    if len(data) >= ACKNOWLEDGED_AT:
        head, [checksum] = data[: _HEAD.size], _SUM.unpack_from(data, _HEAD.size)
        magic, raw, name = _HEAD.unpack(head)
        if magic == MAGIC and crc32(head) == checksum:
            segment, key = UUID(bytes=raw), name
    if len(data) >= BEGIN:
        told = data[ACKNOWLEDGED_AT : ACKNOWLEDGED_AT + _ACKNOWLEDGED.size]
        [checksum] = _SUM.unpack_from(data, ACKNOWLEDGED_AT + _ACKNOWLEDGED.size)
        if crc32(told) == checksum:
            [end] = _ACKNOWLEDGED.unpack(told)
    return Header(segment, key, end)


def frame(seq: int, closed: bytes) -> bytes:
    """Record *seq*, sealed, as it stands in the file."""
    return _FRAME.pack(MARKER, seq, len(closed), _checksum(seq, len(closed), closed)) + closed


def frame_at(data: bytes, offset: int) -> Frame | None:
    """The frame that begins at *offset*; None: none does, or its checksum is wrong."""
    if len(data) - offset < FRAME_BYTES:
        return None
    marker, seq, size, checksum = _FRAME.unpack_from(data, offset)
    if marker != MARKER or len(data) - offset - FRAME_BYTES < size:
        return None
    begin = offset + FRAME_BYTES
    closed = data[begin : begin + size]
    if _checksum(seq, size, closed) != checksum:
        return None
    return Frame(offset, FRAME_BYTES + size, seq, closed)


def walk(data: bytes) -> Iterator[Frame | Gap]:
    """Everything behind the header of *data*, in its order."""
    at = BEGIN
    while at < len(data):
        found = frame_at(data, at)
        if found is None:
            begin, found = at, None
            while found is None and (at := data.find(MARKER, at + 1)) >= 0:
                found = frame_at(data, at)
            yield Gap(begin, len(data) if found is None else found.offset)
            if found is None:
                return
        yield found
        at = found.offset + found.size


def _checksum(seq: int, size: int, closed: bytes) -> int:
    return crc32(closed, crc32(struct.pack(">QI", seq, size)))
