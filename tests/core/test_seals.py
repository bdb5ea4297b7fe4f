"""A kept reply opens to what was answered, or not at all; nothing of a sealed one is readable."""

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.core.seals import MARK, Seal, Unopened, kept, opened

HEADERS = st.lists(st.tuples(st.text(), st.text()), max_size=5)


def sealing(secret: bytes) -> Seal:
    """An authenticated toy; users bring theirs."""

    def stream(body: bytes) -> bytes:
        pad = hashlib.shake_256(secret).digest(len(body))
        return bytes(a ^ b for a, b in zip(body, pad, strict=True))

    def close(body: bytes) -> bytes:
        return hmac.digest(secret, body, "sha256") + stream(body)

    def open_(sealed: bytes) -> bytes:
        body = stream(sealed[32:])
        if not hmac.compare_digest(hmac.digest(secret, body, "sha256"), sealed[:32]):
            raise ValueError("another key")
        return body

    return Seal(close, open_)


SEAL = sealing(b"k")


@given(headers=HEADERS, body=st.binary())
def test_a_reply_comes_back_to_the_byte(headers: list[tuple[str, str]], body: bytes) -> None:
    for seal in (None, SEAL):
        told = kept(headers, body, seal=seal)
        assert opened(told.headers, told.body, seal=seal) == (headers, body)
        assert not told.gone


@given(body=st.binary(min_size=12))
def test_nothing_of_a_sealed_reply_is_readable(body: bytes) -> None:
    told = kept([("location", "/secret/1")], body, seal=SEAL)

    assert told.headers == [MARK]
    assert b"/secret/1" not in told.body
    assert body not in told.body


def test_an_omitted_reply_is_a_tombstone() -> None:
    told = kept([("location", "/1")], b"1", store="omit")

    assert (told.headers, told.body, told.gone) == ([], b"", True)
    with pytest.raises(ValueError, match="leave one out"):
        kept([], b"", store="omit", seal=SEAL)


@pytest.mark.parametrize("seal", [None, sealing(b"other")])
def test_without_its_key_a_sealed_reply_does_not_open(seal: Seal | None) -> None:
    told = kept([], b"1", seal=SEAL)

    with pytest.raises(Unopened):
        opened(told.headers, told.body, seal=seal)


def test_a_sealed_reply_that_was_changed_does_not_open() -> None:
    told = kept([], b"1", seal=SEAL)

    with pytest.raises(Unopened):
        opened(told.headers, told.body[:-1] + b"x", seal=SEAL)


def test_a_reply_from_before_there_was_a_seal_is_readable() -> None:
    assert opened([("a", "b")], b"1", seal=SEAL) == ([("a", "b")], b"1")
