"""A key is kept until its action is done, and pauses are what patience and server say."""

import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaky import Flaky, flaky, problem
from semel.client import Client, FileKeys, KeyStore, MemoryKeys, PairKeys, Patience, Problem
from semel.edges import idempotency_key
from semel.edges.client.keys import quoted
from semel.edges.client.patience import retry_after
from semel.errors import BadKey

DATE = "Mon, 30 Nov 2026 10:44:30 GMT"


def in_memory(_: Path) -> KeyStore:
    return MemoryKeys()


def in_a_file(home: Path) -> KeyStore:
    return FileKeys(home / "keys")


def in_a_pair(_: Path) -> PairKeys:
    kept: dict[tuple[str, str], str | None] = {}

    def load(name: str, action_id: str) -> str | None:
        return kept.get((name, action_id))

    def save(name: str, action_id: str, key: str | None) -> None:
        kept[name, action_id] = key

    return PairKeys(load, save)


@pytest.fixture(params=[in_memory, in_a_file, in_a_pair])
def keys(request: pytest.FixtureRequest, tmp_path: Path) -> KeyStore:
    store: Callable[[Path], KeyStore] = request.param
    return store(tmp_path)


@pytest.fixture
def server() -> Iterator[Flaky]:
    with flaky() as here:
        yield here


def test_a_key_belongs_to_a_name_and_an_id_until_it_is_forgotten(keys: KeyStore) -> None:
    key = keys.keep("pay", "17")
    assert str(uuid.UUID(key)) == key
    assert keys.keep("pay", "17") == key
    assert len({key, keys.keep("pay", "18"), keys.keep("ship", "17")}) == 3
    keys.forget("pay", "17")
    keys.forget("pay", "never")
    assert keys.keep("pay", "17") != key


def test_no_answer_forgets_a_key_but_done_does(keys: KeyStore, server: Flaky) -> None:
    server.acts = [problem(409, "E-IDEMPOTENT-004")]
    with Client(base_url=server.url, keys=keys, trust_env=False) as client:
        pay = client.action("pay", "17")
        with pytest.raises(Problem):
            pay.post("/pay", headers={"x-trace": "t"})
        pay.post("/pay")
        pay.done()
        pay.patch("/pay")
    first, second, third = (got.key for got in server.got)
    assert first == second != third
    assert ("x-trace", "t") in server.got[0].headers


def test_a_file_of_keys_is_one_for_all_threads_and_its_owner_s_own(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    found: list[str] = []
    ready = threading.Barrier(8)

    def keep() -> None:
        ready.wait()
        found.append(FileKeys(path).keep("pay", "17"))

    threads = [threading.Thread(target=keep) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    assert path.stat().st_mode & 0o077 == 0


def test_a_key_outlives_a_process_that_dies_after_keeping_it(tmp_path: Path) -> None:
    program = (
        "import os, sys; from semel.client import FileKeys;"
        "print(FileKeys(sys.argv[1]).keep('pay', '17'), flush=True); os.kill(os.getpid(), 9)"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "keys")],
            capture_output=True,
            text=True,
            check=False,
        )
        for _ in range(2)
    ]
    assert [each.returncode for each in said] == [-9, -9]
    assert said[0].stdout == said[1].stdout != ""


def test_a_key_that_could_not_be_kept_is_not_sent(server: Flaky) -> None:
    def refuse(name: str, action_id: str, key: str | None) -> None:
        raise OSError("disk full")

    keys = PairKeys(lambda name, action_id: None, refuse)
    with (
        Client(base_url=server.url, keys=keys, trust_env=False) as client,
        pytest.raises(OSError, match="disk full"),
    ):
        client.action("pay", "17").post("/pay")
    assert not server.got


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=255))
def test_the_server_reads_the_key_that_the_client_quoted(key: str) -> None:
    line = [("idempotency-key", quoted(key))]
    assert idempotency_key.find(line, required=True) == key


@pytest.mark.parametrize("key", ["", "k" * 256, "schlüssel", "a\nb", "a\x7f"])
def test_what_is_no_key_is_not_quoted(key: str) -> None:
    with pytest.raises(BadKey):
        quoted(key)


@given(st.integers(1, 10_000), st.floats(0, 1), st.none() | st.floats(0, 1e6))
def test_a_pause_is_what_is_asked_for_and_part_of_what_is_allowed(
    tries: int, chance: float, asked: float | None
) -> None:
    pause = Patience(first=0.5, longest=8).pause(tries, asked, chance)
    assert 0 <= pause - (asked or 0) <= 8.001


def test_pauses_double_up_to_the_longest() -> None:
    pauses = [Patience(first=0.5, longest=4).pause(tries, None, 1) for tries in range(1, 7)]
    assert pauses == [0.5, 1, 2, 4, 4, 4]


@pytest.mark.parametrize(
    "wrong", [{"tries": 0}, {"first": 0}, {"longest": -1}, {"deadline": float("nan")}]
)
def test_a_patience_that_none_could_follow_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Patience(**wrong)  # type: ignore[arg-type] # pytest's parameters have one type


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("", None),
        ("0", 0),
        (" 120 ", 120),
        ("9" * 5000, float("inf")),
        ("-1", None),
        ("1.5", None),
        ("²", None),
        ("soon", None),
        ("Mon, 30 Nov 2026 10:45:30 GMT", 60),
        ("Mon, 30 Nov 2026 10:45:30 -0000", 60),
        ("Monday, 30-Nov-26 10:45:30 GMT", 60),
        ("Mon, 30 Nov 2026 09:44:30 GMT", 0),
        ("Mon, 99 Nov 2026 10:45:30 GMT", None),
    ],
)
def test_retry_after_is_read_in_both_forms(value: str | None, seconds: float | None) -> None:
    assert retry_after(value, DATE, now=0) == seconds


@pytest.mark.parametrize("date", [None, "today"])
def test_a_date_is_counted_from_now_where_the_answer_has_none(date: str | None) -> None:
    assert retry_after(DATE, date, now=1796035465) == 5


@given(
    st.text()
    | st.from_regex(r"[A-Z][a-z]{2}, \d{1,3} [A-Z][a-z]{2} \d{1,6} \d\d:\d\d:\d\d .{0,5}")
)
def test_no_retry_after_breaks_a_client(value: str) -> None:
    seconds = retry_after(value, value, now=0)
    assert seconds is None or seconds >= 0
