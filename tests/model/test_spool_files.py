"""A spool's files against any crash and any flipped bit: what was answered for is there, in order."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from fix_server import in_memory
from modelling import NIGHTLY, SOAK
from semel.edges.spool import segment
from spool_files import aside, content, crashed, opened, plain, spool_file

EXAMPLES = 3000 if SOAK or NIGHTLY else 60


@settings(deadline=None, max_examples=EXAMPLES)
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


@settings(deadline=None, max_examples=EXAMPLES)
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
