"""An answer of getUpdates is read byte for byte, or it is none; its batch is behind all of it."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.config import Secret, Source
from semel.edges.poller import batch as batches
from semel.edges.poller.answer import Unanswered, Update, read
from semel.edges.poller.batch import BATCH_MAX, planned
from semel.edges.poller.pace import MOST, Pace

TOKEN = "1:AAtoken"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
SOURCE = Source(
    name="bot",
    channel="telegram-poll",
    agent="a",
    secrets=(Secret(reference="env:T", environ={"T": TOKEN}),),
)


def answer(body: bytes, status: int = 200, **headers: str) -> list[Update]:
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    return read(status, told, body, token=TOKEN)


def why(body: Any, status: int = 200, **headers: str) -> Unanswered:
    with pytest.raises(Unanswered) as bad:
        answer(
            body if isinstance(body, bytes) else json.dumps(body).encode(), status, **headers
        )
    return bad.value


@given(
    updates=st.lists(JSON, max_size=6),
    pad=st.sampled_from(["", " ", "\n", "\t "]),
    ascii_only=st.booleans(),
)
def test_each_update_is_cut_out_as_it_stands(
    updates: list[Any], pad: str, *, ascii_only: bool
) -> None:
    raws = [json.dumps(each, ensure_ascii=ascii_only) for each in updates]
    with suppress(UnicodeEncodeError):
        body = '{{"ok":true,{}"a":[{{"result":[1]}}],"result"{}:[{}]{}}}'.format(
            pad,
            pad,
            f"{pad},{pad}".join(raws),
            pad,
        )
        found = answer(body.encode())
        assert [update.raw.decode() for update in found] == raws


@given(body=st.binary(max_size=300) | JSON.map(lambda told: json.dumps(told).encode()))
def test_no_body_makes_an_answer_fail_in_another_way(body: bytes) -> None:
    with suppress(Unanswered):
        answer(body)


@given(
    st.text(alphabet='{}[]",:\\ x0truefalsnl', max_size=60).map(
        lambda text: b'{"ok":true,"result":[' + text.encode() + b"]}"
    )
)
def test_nothing_in_a_result_makes_an_answer_fail_in_another_way(body: bytes) -> None:
    with suppress(Unanswered):
        found = answer(body)
        assert len(found) == len(json.loads(body)["result"])


@pytest.mark.parametrize("depth", [500, 200_000])
def test_an_update_that_is_nested_too_deep_leaves_the_others_as_they_are(depth: int) -> None:
    deep = b'{"update_id": 8, "x": ' + b"[" * depth + b"]" * depth + b"}"
    found = answer(
        b'{"ok":true,"result":[{"update_id":7},' + deep + b',{"a":"]","update_id":9}]}'
    )
    assert [update.raw for update in found][1] == deep
    assert [update.id for update in found][:2] == [7, 8]


def test_a_pause_is_taken_from_the_body_or_the_header_and_is_an_hour_at_most() -> None:
    told = {"ok": False, "error_code": 429, "parameters": {"retry_after": 7}}
    assert why(told, 429).seconds == 7
    assert why({"ok": False}, 429, retry_after="9").seconds == 9
    assert why({"ok": False, "parameters": {"retry_after": 10**9}}, 429).seconds == 3600
    assert why({"ok": False, "parameters": {"retry_after": -1}}, 429).seconds == 0
    assert why({"ok": False, "parameters": {"retry_after": "x"}}, 429).seconds is None
    assert why({"ok": False, "parameters": 7}, 429, retry_after="soon").seconds is None
    assert why(b"", 503, retry_after="5").seconds == 5


@pytest.mark.parametrize(
    "said",
    [f"no {TOKEN} here", "no AAtoken here", "line\nbreak \x1b[31m", "x" * 10_000, 7, None],
)
def test_what_it_said_is_short_plain_and_without_the_token(said: Any) -> None:
    text = str(why({"ok": False, "error_code": 400, "description": said}, 400))
    assert "AAtoken" not in text
    assert text.isprintable()
    assert len(text) < 300


@pytest.mark.parametrize(
    ("ids", "seen", "placed"),
    [
        ([5, 6], None, [5, 6]),
        ([5, None, 7], 5, [5, 6, 7]),
        ([None, 7], 5, [6, 7]),
        ([None, 7], None, [6, 7]),
        ([None, None], 5, [5, 6]),
        ([7, None], 5, [7, 8]),
        ([None, 0], None, [0, 0]),
        ([9, 5], 5, [5, 9]),
        ([40], 500, [40]),
        ([None, 40], 500, [39, 40]),
    ],
)
def test_an_update_without_an_id_has_its_place(
    ids: list[int | None], seen: int | None, placed: list[int]
) -> None:
    batch = planned([Update(each, b"") for each in ids], seen)
    assert batch is not None
    assert batch.ids == placed
    assert batch.next_id == max(placed) + 1


def test_updates_that_nobody_can_place_are_no_batch() -> None:
    assert planned([Update(None, b"")], None) is None


@given(
    st.lists(st.none() | st.integers(0, 2000), min_size=1, max_size=400),
    st.none() | st.integers(0, 2000),
)
def test_a_batch_is_behind_all_of_it_and_before_what_it_leaves(
    ids: list[int | None], seen: int | None
) -> None:
    batch = planned([Update(each, b"") for each in ids], seen)
    if batch is None:
        return
    assert len(batch.updates) == min(len(ids), BATCH_MAX)
    taken = [id(update) for update in batch.updates]
    known = sorted(each for each in ids if each is not None)
    assert all(each < batch.next_id for each in batch.ids)
    if len(ids) <= BATCH_MAX:
        assert len(set(taken)) == len(ids)
        assert not known or batch.next_id > known[-1]


def test_a_reader_that_fails_quarantines_its_update_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batch = planned([Update(5, b'{"update_id":5}')], None)
    assert batch is not None
    monkeypatch.setattr(batches, "READERS", {"telegram-poll": lambda *_: 1 // 0})
    [offer] = batches.offers(SOURCE, batch)
    assert (offer.verdict, offer.reason) == ("quarantined", "ZeroDivisionError")
    assert offer.body == b'{"update_id":5}'


def test_pauses_double_up_to_a_minute_and_are_never_shorter_than_was_asked() -> None:
    pace = Pace()
    for failures, most in ((0, 1), (1, 2), (5, 32), (6, MOST), (10**6, MOST)):
        pauses = [pace.pause("failing", failures).total_seconds() for _ in range(50)]
        assert all(most / 2 <= pause <= most for pause in pauses)
    assert pace.pause("throttled", 0, 30).total_seconds() >= 30
