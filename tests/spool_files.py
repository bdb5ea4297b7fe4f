"""The files of a spool on a disk that crashes, for tests."""

import struct
from contextlib import suppress
from pathlib import Path
from unittest import mock

from semel.edges.spool.files import Files
from semel.edges.spool.seal import Keys
from spooling import KEY

HEAD = struct.Struct(">dI")


class Crash(BaseException):
    """The process and the machine are gone."""


def plain(n: int, size: int = 3) -> bytes:
    return HEAD.pack(float(n), 0) + bytes([n % 256]) * size


def opened(folder: Path, *keys: str, most: int = 1 << 22) -> Files:
    told = Keys([key.encode() for key in keys or (KEY,)])
    return Files(folder / "p" / "s", told, aside=folder / "damaged", file_bytes_max=most)


def content(folder: Path, *keys: str) -> list[bytes | None]:
    found = opened(folder, *keys)
    return found.read(found.recover())


def spool_file(folder: Path) -> Path:
    [path] = folder.rglob("*.spool")
    return path


def aside(folder: Path) -> list[bytes]:
    return [each.read_bytes() for each in sorted(folder.rglob("*.damaged"))]


def crashed(found: Files, batch: list[bytes], nth: int = 1) -> dict[Path, bytes]:
    """Append *batch*, and be gone in the nth fsync; answers what was synced by then."""
    synced: dict[Path, bytes] = {}
    left = nth

    def sync(fd: int) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Crash
        path = Path(f"/proc/self/fd/{fd}").readlink()
        if path.is_file():
            synced[path] = path.read_bytes()

    with mock.patch("os.fsync", side_effect=sync), suppress(Crash):
        found.append(batch)
    return synced
