"""
Files: the segments of one source on the disk, oldest first. Blocking; one thread calls it.

    begin ──fsync file, folder──> write ──fsync──> acknowledged ──drained──> removed, fsync folder

What an append answers for is on the disk. One that fails leaves nothing: the file is cut to where
it was and never written again, since after a failed fsync nobody knows what is on the disk. A
process writes only files of its own; what an earlier one left is read, cut behind what it may have
acknowledged, and damage in it is set aside as a file, byte for byte.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID, uuid4

from semel import log
from semel.db.stops import stop_here
from semel.edges.spool import record, segment
from semel.edges.spool.seal import NONCE_BYTES, TAG_BYTES
from semel.errors import BadConfig

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from semel.edges.spool.seal import Keys, Seal

#: What a record costs besides its plain bytes.
OVERHEAD_BYTES = segment.FRAME_BYTES + NONCE_BYTES + TAG_BYTES
_NAME = re.compile(r"([0-9]{12})-([0-9a-f]{32})\.spool")


@dataclass(eq=False, slots=True)
class Segment:
    """One file, and what of it is still to be drained."""

    path: Path
    id: UUID
    seals: list[Seal]
    end: int  # everything before it is acknowledged
    seq: int = 0  # of its last record
    left: int = 0  # records that are not drained


class Entry(NamedTuple):
    """A record on the disk."""

    segment: Segment
    seq: int
    offset: int
    size: int
    at: float  # when it came, unix seconds


class Files:
    """
    The segments in *folder*, which need not be there yet.

    Args:
        aside: Where damaged bytes go.
        file_bytes_max: A file that has as many is not written any more.
    """

    def __init__(self, folder: Path, keys: Keys, *, aside: Path, file_bytes_max: int) -> None:
        self._folder = folder
        self._keys = keys
        self._aside = aside
        self._file_bytes_max = file_bytes_max
        self._segments: list[Segment] = []
        self._order = 0  # of the newest file
        self._open: Segment | None = None  # that is written
        self._fd = -1
        self._held: set[Path] = set()  # damaged, and no copy of that could be made
        self._told: set[tuple[Path, int]] = set()  # damage that was spoken of

    @property
    def damaged(self) -> int:
        """Pieces that could not be read."""
        return len(self._told)

    @property
    def size(self) -> int:
        """Bytes that they take on the disk."""
        return sum(each.end for each in self._segments)

    def recover(self) -> list[Entry]:
        """
        What is there from earlier, in its order.

        Raises:
            BadConfig: a file was written with a key that is not told.
            OSError: the disk cannot be read, or not be written.
        """
        found = []
        for path in sorted(self._folder.glob("*.spool")) if self._folder.is_dir() else ():
            name = _NAME.fullmatch(path.name)
            if name is not None:
                self._order = max(self._order, int(name[1]))
                found += self._recovered(path, UUID(hex=name[2]))
        return found

    def append(self, plains: Sequence[bytes]) -> list[Entry]:
        """
        Keep records, all of them synced when it returns.

        Raises:
            OSError: none of them is kept.
        """
        try:
            if self._open is None:
                self._begin()
            return self._append(plains)
        except OSError:
            self._give_up()
            raise

    def read(self, entries: Sequence[Entry]) -> list[bytes | None]:
        """The records; in place of one that is damaged by now None, and it is set aside."""
        return [self._read(entry) for entry in entries]

    def drop(self, entries: Sequence[Entry]) -> list[UUID]:
        """
        Remove the files of which nothing is left when *entries* are drained; answers their ids.

        One that cannot be removed stays, and is found drained at the next start.
        """
        gone = []
        for entry in entries:
            entry.segment.left -= 1
            if entry.segment.left == 0 and self._removed(entry.segment):
                gone.append(entry.segment.id)
        return gone

    def set_aside(self, entry: Entry, reason: str) -> None:
        """Keep a copy of a record that can never be drained where an operator finds it."""
        data = _piece(entry.segment.path, entry.offset, entry.size)
        self._damage(entry.segment.path, entry.offset, data, reason)

    def close(self) -> None:
        """Write no more."""
        self._seal()

    def _begin(self) -> None:
        _make(self._folder)
        self._order += 1
        made = uuid4()
        path = self._folder / f"{self._order:012}-{made.hex}.spool"
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        seal = self._keys.seal(made, self._keys.name)
        self._open = Segment(path, made, [seal] if seal else [], segment.BEGIN)
        self._segments.append(self._open)
        _write(self._fd, segment.header(made, self._keys.name), 0)
        # On the disk before any record is: a header that cannot be read is damage, unless nothing
        # stands behind it.
        os.fsync(self._fd)
        _sync(self._folder)

    def _append(self, plains: Sequence[bytes]) -> list[Entry]:
        here = self._open
        assert here is not None  # noqa: S101 - append began one
        entries, frames, end = [], [], here.end
        for seq, plain in enumerate(plains, here.seq + 1):
            told = segment.frame(seq, here.seals[0].close(seq, plain))
            entries.append(Entry(here, seq, end, len(told), record.received_at(plain)))
            frames.append(told)
            end += len(told)
        _write(self._fd, b"".join(frames), here.end)
        stop_here("spool.sync.before")
        os.fsync(self._fd)
        here.end, here.seq, here.left = end, here.seq + len(plains), here.left + len(plains)
        with suppress(OSError):  # it goes to the disk with the next record; nothing hangs on it
            _write(self._fd, segment.acknowledged(end), segment.ACKNOWLEDGED_AT)
        stop_here("spool.sync.after")
        if here.end >= self._file_bytes_max:
            self._seal()
        return entries

    def _give_up(self) -> None:
        """Write the open file no more, and nothing behind what is acknowledged in it."""
        here, fd = self._open, self._fd
        if here is None:
            return
        with suppress(OSError):
            os.ftruncate(fd, here.end)
        self._seal()
        if here.left == 0:
            self._removed(here)

    def _seal(self) -> None:
        fd, self._open, self._fd = self._fd, None, -1
        if fd >= 0:
            with suppress(OSError):
                os.close(fd)

    def _removed(self, gone: Segment) -> bool:
        if gone is self._open:
            self._seal()
        if gone.path in self._held:
            return False
        stop_here("spool.remove.before")
        self._segments.remove(gone)
        try:
            gone.path.unlink(missing_ok=True)
            _sync(self._folder)
        except OSError as error:
            log.event("spool.kept", file=str(gone.path), reason=error.strerror or str(error))
            return False
        stop_here("spool.remove.after")
        return True

    def _read(self, entry: Entry) -> bytes | None:
        data = _piece(entry.segment.path, entry.offset, entry.size)
        found = segment.frame_at(data, 0)
        if found is not None and found.seq == entry.seq:
            plain = _opened(entry.segment.seals, found)
            if plain is not None:
                return plain
        self._damage(entry.segment.path, entry.offset, data, "it is not what was written")
        return None

    def _recovered(self, path: Path, told: UUID) -> list[Entry]:
        data = path.read_bytes()
        head = segment.read_header(data)
        if head.segment == told:
            seal = self._keys.seal(told, head.key)
            if seal is None:
                raise BadConfig(
                    f"[spool] keys: {path} was written with another key: add the old one behind"
                    " the new one until it is drained"
                )
            seals = [seal]
        else:
            seals = self._keys.seals(told)
            if len(data) > segment.BEGIN:
                self._damage(path, 0, data[: segment.BEGIN], "its header is unreadable")
        sure = len(data) if head.acknowledged is None else head.acknowledged
        here = Segment(path, told, seals, segment.BEGIN)
        self._segments.append(here)
        entries = []
        cut = len(data)  # the first of what nobody was told of
        for piece in segment.walk(data):
            if isinstance(piece, segment.Gap):
                self._gap(path, data, piece, sure)
                cut = min(cut, piece.offset) if piece.offset >= sure else cut
                continue
            end = piece.offset + piece.size
            plain = _opened(seals, piece)
            if plain is None:
                self._damage(path, piece.offset, data[piece.offset : end], "it does not open")
                continue
            at = record.received_at(plain)
            entries.append(Entry(here, piece.seq, piece.offset, piece.size, at))
            here.end, here.seq, here.left = end, piece.seq, here.left + 1
        if len(data) < sure and (path, here.end) not in self._told:
            self._damage(
                path, len(data), b"", f"{sure - len(data)} acknowledged bytes are missing"
            )
        if path not in self._held:
            self._settle(here, len(data), min(cut, here.end))
        if not entries:
            self._removed(here)
        return entries

    def _gap(self, path: Path, data: bytes, gap: segment.Gap, sure: int) -> None:
        if gap.offset >= sure:
            log.event(
                "spool.cut", file=str(path), offset=gap.offset, bytes=gap.end - gap.offset
            )
        else:
            self._damage(path, gap.offset, data[gap.offset : gap.end], "a checksum is wrong")

    def _settle(self, here: Segment, size: int, sure: int) -> None:
        """
        Have on the disk what was found, and nothing behind it.

        What is acknowledged ends before a cut that a record stands behind, or the next start would
        take the cut for damage.
        """
        fd = os.open(here.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if size > here.end:
                os.ftruncate(fd, here.end)
            _write(fd, segment.acknowledged(sure), segment.ACKNOWLEDGED_AT)
            os.fsync(fd)
        finally:
            os.close(fd)

    def _damage(self, path: Path, offset: int, data: bytes, reason: str) -> None:
        """Set bytes aside, once; where that fails it is said all the same."""
        if (path, offset) in self._told:
            return
        self._told.add((path, offset))
        source = "+".join(self._folder.parts[-2:])
        kept = self._aside / f"{source}+{path.stem}+{offset}.damaged"
        is_aside = False
        try:
            _make(self._aside)
            with suppress(FileExistsError), kept.open("xb") as file:
                kept.chmod(0o600)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            _sync(self._aside)
        except OSError as error:
            self._held.add(path)
            reason = f"{reason}; it could not be set aside: {error.strerror or error}"
        else:
            is_aside = True
        log.event(
            "spool.damaged",
            file=str(path),
            offset=offset,
            bytes=len(data),
            reason=reason,
            kept=str(kept) if is_aside else None,
        )


def _opened(seals: Sequence[Seal], found: segment.Frame) -> bytes | None:
    for seal in seals:
        plain = seal.open(found.seq, found.closed)
        if plain is not None:
            return plain
    return None


def _piece(path: Path, offset: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(size)


def _write(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(fd, view, offset)
        view, offset = view[count:], offset + count


def _make(folder: Path) -> None:
    """Make *folder* and those above it, each name of them on the disk."""
    if folder.is_dir():
        return
    _make(folder.parent)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    _sync(folder.parent)


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
