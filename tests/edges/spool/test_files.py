"""What an append answered for is kept, what it did not is cut, and damage is never silent."""

from pathlib import Path
from unittest import mock

import pytest

from semel.edges.spool import segment
from semel.errors import BadConfig
from spool_files import aside, content, crashed, opened, plain, spool_file
from spooling import KEY, OTHER_KEY


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


def test_what_was_cut_before_a_record_is_no_damage_at_the_next_start(tmp_path: Path) -> None:
    """Of two that were written and not synced, a crash spoiled the first and left the second."""
    found = opened(tmp_path)
    found.append([plain(1)])
    path = spool_file(tmp_path)
    sure = path.stat().st_size
    crashed(found, [plain(2), plain(3)])
    raw = bytearray(path.read_bytes())
    raw[sure] ^= 1
    path.write_bytes(raw)
    for _ in range(3):
        assert content(tmp_path) == [plain(1), plain(3)]
    assert aside(tmp_path) == []
