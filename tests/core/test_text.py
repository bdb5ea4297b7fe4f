"""JSON from outside: what PostgreSQL cannot keep is refused with a sentence, never a crash."""

import json
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fix_world import Conn, one
from semel.core.text import DEPTH_MAX, dump, load, load_object
from semel.errors import BadRequest


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "not JSON"),
        (b"\xff{}", "not UTF-8: byte 0"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b"{", "not JSON"),
        (b'{"a":NaN}', "NaN is not JSON"),
        (b'{"a":1e999}', "out of range"),
        (b"[" * 5000 + b"]" * 5000, "deeper than 200"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "deeper than 200"),
        (b'"\\u0000"', "NUL"),
        (b'{"\\u0000":1}', "NUL"),
        (b'"\\ud800"', "surrogate"),
        (b"1" * 5000, "not JSON"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_the_reason(raw: bytes, words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        load(raw)


def test_depth_counts_brackets_and_not_text() -> None:
    assert load(b'"' + b"[" * 5000 + b'"') == "[" * 5000
    assert load(b'["\\"' + b"{" * 300 + b'"]') == ['"' + "{" * 300]
    flat = json.dumps([[1]] * 1000).encode()
    assert 1000 == len(load(flat))  # type: ignore[arg-type]
    load(b"[" * DEPTH_MAX + b"]" * DEPTH_MAX)


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"[]", "array"),
        (b"1", "number"),
        (b"true", "boolean"),
        (b"null", "null"),
        (b'""', "string"),
    ],
)
def test_another_value_than_an_object_is_named(raw: bytes, kind: str) -> None:
    with pytest.raises(BadRequest, match=f"a JSON {kind}, not an object"):
        load_object(raw)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-1e15, 1e15) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(value=JSON)
def test_what_we_accept_postgresql_keeps(conn: Conn, value: object) -> None:
    try:
        text = dump(value)
    except ValueError:
        return
    assert load(text.encode()) == value
    assert value == one(conn, "select %s::jsonb", text)


@settings(max_examples=300, deadline=None)
@given(raw=st.binary(max_size=200))
def test_any_bytes_are_json_or_refused(raw: bytes) -> None:
    try:
        load(raw)
    except BadRequest as refused:
        assert len(str(refused)) < 300


def test_the_interpreters_own_recursion_is_never_reached() -> None:
    assert DEPTH_MAX < sys.getrecursionlimit() / 2
