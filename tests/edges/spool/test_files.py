"""What an append answered for is there after any crash; what it did not is cut; damage is never silent."""

import struct
import tempfile
from contextlib import suppress
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fix_server import in_memory
from semel.edges.spool import segment
from semel.edges.spool.files import Files
from semel.edges.spool.seal import Keys
from semel.errors import BadConfig
from spooling import KEY, OTHER_KEY

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


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_after_any_crash_the_acknowledged_is_there_in_order_and_nothing_is_half(
    data: st.DataObject,
) -> None:
    """Each round appends, and a crash leaves any beginning of what was not synced, or zeros in it."""
    with tempfile.TemporaryDirectory(dir=in_memory()) as home:
        folder = Path(home)
        sure: list[bytes | None] = []
        n = 0
        for _ in range(data.draw(st.integers(1, 3), "rounds")):
            found = opened(folder, most=data.draw(st.sampled_from([1, 300, 1 << 20]), "most"))
            found.recover()
            for size in data.draw(st.lists(st.integers(1, 3), max_size=3), "appends"):
                batch = [plain(n + k, 10 * k) for k in range(size)]
                n += size
                found.append(batch)
                sure += batch
            before = {path: path.read_bytes() for path in folder.rglob("*.spool")}
            lost: list[bytes | None] = [plain(n), plain(n + 1, 40)]
            n += 2
            nth = data.draw(st.integers(1, 6), "nth fsync")
            before |= crashed(found, [each for each in lost if each], nth)
            for path in sorted(folder.rglob("*.spool")):
                old, new = before.get(path, b""), path.read_bytes()
                tail = bytearray(
                    new[len(old) : data.draw(st.integers(len(old), len(new)), "cut")]
                )
                if tail and data.draw(st.booleans(), "zeros"):
                    at = data.draw(st.integers(0, len(tail) - 1), "at")
                    tail[at : at + 16] = bytes(len(tail[at : at + 16]))
                if len(old) >= segment.BEGIN and data.draw(st.booleans(), "an older mark"):
                    old = old[:44] + segment.acknowledged(segment.BEGIN) + old[56:]
                path.write_bytes(old + tail)
            now = content(folder)
            assert now[: len(sure)] == sure
            assert [each for each in lost if each in now[len(sure) :]] == now[len(sure) :]
            assert aside(folder) == []
            sure = now


@settings(deadline=None, max_examples=60)
@given(
    at=st.integers(0, 10_000),
    bit=st.integers(0, 7),
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=5),
)
def test_a_flipped_bit_costs_one_record_at_most_and_is_set_aside(
    at: int, bit: int, sizes: list[int]
) -> None:
    with tempfile.TemporaryDirectory(dir=in_memory()) as home:
        folder = Path(home)
        wrote = [plain(n, size) for n, size in enumerate(sizes)]
        opened(folder).append(wrote)
        path = spool_file(folder)
        raw = bytearray(path.read_bytes())
        raw[at % len(raw)] ^= 1 << bit
        path.write_bytes(raw)
        now = content(folder)
        assert len(now) >= len(wrote) - 1
        assert [each for each in wrote if each in now] == now
        if len(now) < len(wrote):
            [piece] = aside(folder)
            assert piece in bytes(raw)


def test_a_tail_that_was_never_acknowledged_is_cut_and_an_acknowledged_one_is_damage(
    tmp_path: Path,
) -> None:
    found = opened(tmp_path)
    found.append([plain(1)])
    crashed(found, [plain(2)])
    path = spool_file(tmp_path)
    raw = path.read_bytes()
    path.write_bytes(raw[:-1])
    assert content(tmp_path) == [plain(1)]
    assert path.stat().st_size == len(raw) - (len(raw) - segment.BEGIN) // 2
    assert aside(tmp_path) == []

    other = tmp_path / "other"
    opened(other).append([plain(1), plain(2)])
    path = spool_file(other)
    raw = path.read_bytes()
    path.write_bytes(raw[:-1])
    assert content(other) == [plain(1)]
    [piece] = aside(other)
    assert raw[:-1].endswith(piece)


def test_a_record_in_another_place_or_file_does_not_open(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    opened(one).append([plain(1), plain(2)])
    opened(two).append([plain(3), plain(4)])
    raw = spool_file(one).read_bytes()
    half = (len(raw) - segment.BEGIN) // 2
    strange = spool_file(two).read_bytes()[segment.BEGIN :][:half]
    spool_file(one).write_bytes(raw[: segment.BEGIN] + strange + raw[segment.BEGIN + half :])
    assert content(one) == [plain(2)]
    assert aside(one) == [strange]


def test_a_file_without_its_key_is_refused_and_left_alone(tmp_path: Path) -> None:
    opened(tmp_path, OTHER_KEY).append([plain(1)])
    raw = spool_file(tmp_path).read_bytes()
    with pytest.raises(BadConfig, match="written with another key"):
        content(tmp_path)
    assert spool_file(tmp_path).read_bytes() == raw
    assert content(tmp_path, KEY, OTHER_KEY) == [plain(1)]


def test_a_file_is_removed_with_its_last_record_and_damage_without_a_copy_stays(
    tmp_path: Path,
) -> None:
    found = opened(tmp_path, most=1)
    entries = found.append([plain(1), plain(2)]) + found.append([plain(3)])
    assert len(list(tmp_path.rglob("*.spool"))) == 2
    assert found.drop(entries[:1]) == []
    assert found.drop(entries[1:2]) == [entries[0].segment.id]
    path = spool_file(tmp_path)
    raw = path.read_bytes()
    path.write_bytes(raw[:-3])
    (tmp_path / "damaged").write_text("a file where the folder should be")
    held = opened(tmp_path)
    assert held.recover() == []
    assert path.exists(), "its bytes are nowhere else"
    (tmp_path / "damaged").unlink()
    assert content(tmp_path) == []
    assert not path.exists()
    assert len(aside(tmp_path)) >= 1


def test_an_append_that_fails_leaves_the_file_as_it_was_and_never_writes_it_again(
    tmp_path: Path,
) -> None:
    found = opened(tmp_path)
    found.append([plain(1)])
    path = spool_file(tmp_path)
    raw = path.read_bytes()
    with (
        mock.patch("os.fsync", side_effect=OSError(5, "Input/output error")),
        pytest.raises(OSError, match="Input/output error"),
    ):
        found.append([plain(2)])
    assert path.read_bytes() == raw
    found.append([plain(3)])
    assert path.read_bytes() == raw
    assert content(tmp_path) == [plain(1), plain(3)]
    assert {each.stat().st_mode & 0o777 for each in tmp_path.rglob("*.spool")} == {0o600}
    assert (tmp_path / "p" / "s").stat().st_mode & 0o077 == 0
