"""What is kept of an input: one digest for all spellings of one value, and for no other value."""

import hashlib
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import semel
from semel import BadInput, input_digest
from semel.config import DigestKey
from semel.core.canonical import DEPTH_MAX, canonical, digest
from semel.core.digest import Input, form_digest, value_digest
from semel.core.ecmascript import UNDEFINED, BigInt
from semel.core.form import PARTS_MAX, FormPart
from semel.core.spelling import SIZE_MAX, read
from semel.errors import BadRequest

CORPUS = Path(__file__).parents[1] / "corpus"
WAYS: list[tuple[Any, Any]] = [(1, "js"), (1, "strict"), (2, "js"), (2, "strict")]
NEW = DigestKey("k2", b"n" * 32)
OLD = DigestKey("k1", b"o" * 32)


def corpus(name: str, part: str) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = json.loads((CORPUS / name).read_text()).get(part, [])
    return told


def said(text: str | None, version: Any, decode: Any) -> str:
    """The digest, or `refused`."""
    raw = None if text is None else text.encode("utf-8", "surrogateescape")
    try:
        return input_digest(raw, version=version, decode=decode)
    except BadInput:
        return "refused"


# -- vectors --------------------------------------------------------------------------------

ONE, TWO = "canonical_json_v1.json", "canonical_json.json"


@pytest.mark.parametrize(
    ("version", "vector"),
    [(1, each) for each in corpus(ONE, "vectors")]
    + [(2, each) for each in corpus(TWO, "vectors")],
)
def test_a_vector_has_its_digest(version: Any, vector: dict[str, Any]) -> None:
    text, told = vector["input_json"], vector["sha256"]

    assert said(text, version, "js") == told
    assert said(text, version, "strict") in {told, "refused"}
    if text is not None:
        value = read(text.encode(), "js")
        assert canonical(value, version).decode() == vector["canonical"]
        assert value_digest(value, version=version) == told


@pytest.mark.parametrize("vector", corpus(TWO, "rejects"))
@pytest.mark.parametrize(("version", "decode"), WAYS)
def test_a_reject_is_refused(version: Any, decode: Any, vector: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="not JSON"):
        input_digest(vector["input_json"].encode(), version=version, decode=decode)


# -- section E of the facts -----------------------------------------------------------------

PAIRS: list[tuple[str, str | None, str | None, str]] = [
    ("1", '{"a":1,"b":2}', '{"b":2,"a":1}', "same"),
    ("2", '{"o":{"y":[1,2],"x":null}}', '{ "o" :\n{"x":null,\t"y":[1, 2]}}\r\n', "same"),
    ("3", "[1,2]", "[2,1]", "different"),
    ("4", '{"n":1}', '{"n":1.0}', "same"),
    ("4", '{"n":1}', '{"n":1e0}', "same"),
    ("5", "[100]", "[1E2]", "same"),
    ("6", "[-0]", "[0]", "same"),
    ("6", "[-0.0]", "[0]", "same"),
    ("7", "[1e21]", "[1000000000000000000000]", "same in js"),
    ("8", "[1e20]", "[100000000000000000000]", "same in js"),
    ("9", "[9007199254740992]", "[9007199254740993]", "same in js"),
    ("10", "[9007199254740993]", "[9007199254740994]", "different in js"),
    ("11", "[0.1]", "[0.1000000000000000055511151231257827]", "same"),
    ("12", "[0.3]", "[0.30000000000000004]", "different"),
    ("13", "[1e400]", "[null]", "refused"),
    ("14", "[1e-400]", "[0]", "same"),
    ("15", "[NaN]", "[null]", "refused"),
    ("16", '{"a":null}', "{}", "different"),
    ("17", '{"a":1,"a":2}', '{"a":2}', "same in js"),
    ("17", '{"a":1,"\\u0061":2}', '{"a":2}', "same in js"),
    (
        "17",
        '{"x":0,"0":1,"9":1,"10":1,"9":2,"0":2}',
        '{"0":2,"10":1,"9":2,"x":0}',
        "same in js",
    ),
    ("18", '["1"]', "[1]", "different"),
    ("18", "[true]", "[1]", "different"),
    ("19", '{"k":"\\u00e9\\/"}', '{"k":"é/"}', "same"),
    ("20", '["é"]', '["e\\u0301"]', "different"),
    ("21", '["\\ud83d\\ude00"]', '["😀"]', "same"),
    ("22", '["\\ud800"]', '["\\ufffd"]', "refused, but version 1 in js"),
    ("23", '{"\\ufb33":1,"\\ud83d\\ude00":2}', '{"😀":2,"\ufb33":1}', "same"),
    ("24", '{"10":1,"9":2,"b":3}', '{"b":3,"9":2,"10":1}', "same"),
    ("25", '{"__proto__":{"x":1},"a":1}', '{"a":1}', "different"),
    ("26", None, "null", "different, but version 1"),
    ("26", "", "null", "different, but version 1"),
    (
        "27",
        '{"json":{"at":"2026-01-02T03:04:05.678Z"},"meta":{"values":{"at":["Date"]}}}',
        '{"json":{"at":"2026-01-02T03:04:05.678Z"}}',
        "different",
    ),
    ("28", "\ufeff[1]", "[1]", "same in js"),
    ("29", '{"a":"\udcff"}', '{"a":"\ufffd"}', "refused"),
    ("30", "[" * 5000 + "]" * 5000, "[]", "refused"),
    ("30", '{"a":' * 5000 + "1" + "}" * 5000, "[]", "refused"),
    ("30", "9" * 5000, "0", "refused"),
    ("30", "[" * 100_000, "0", "refused"),
]


@pytest.mark.parametrize(("version", "decode"), WAYS)
@pytest.mark.parametrize(("row", "one", "other", "answer"), PAIRS)
def test_two_inputs_are_the_same_or_not_as_the_facts_say(  # noqa: PLR0917 - a table's columns
    version: Any, decode: Any, row: str, one: str | None, other: str | None, answer: str
) -> None:
    first, second = said(one, version, decode), said(other, version, decode)

    match answer:
        case "same" | "different":
            assert "refused" not in {first, second}
            assert (first == second) is (answer == "same")
        case "same in js" | "different in js" if decode == "js":
            assert "refused" not in {first, second}
            assert (first == second) is (answer == "same in js")
        case "same in js" | "different in js":
            assert "refused" in {first, second}
        case "refused":
            assert first == "refused" != second
        case "refused, but version 1 in js":
            assert (first == "refused") is ((version, decode) != (1, "js"))
            assert first != second != "refused"
        case _:
            assert answer == "different, but version 1"
            assert (first == second) is (version == 1)


def test_no_input_is_zero_bytes_or_null_by_version() -> None:
    assert (
        input_digest(None).removeprefix("sha256:").startswith("e3b0c44298fc1c149afbf4c8996fb9")
    )
    assert input_digest(b"") == input_digest(None) == value_digest(UNDEFINED)
    assert input_digest(None, version=1) == input_digest(b"null", version=1)


@pytest.mark.parametrize("decode", ["js", "strict"])
def test_bytes_of_another_encoding_are_refused(decode: Any) -> None:
    for encoding in ("utf-16", "utf-32", "utf-16-le", "latin-1"):
        with pytest.raises(BadInput):
            input_digest('["é"]'.encode(encoding), decode=decode)


# -- large ones -----------------------------------------------------------------------------

FILL = ",".join(f'"k{n}":"a:b"' for n in range(500))


def many(*members: str) -> str:
    return f"{{{','.join(members)}}}"


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", ['"k7"', '"\\u006b7"'])
def test_a_name_sent_twice_among_many_is_seen(version: Any, name: str) -> None:
    once = many(FILL.replace('"k7":"a:b"', '"k7":"c::d"'))
    twice = many(FILL, f'{name}:"c::d"')

    assert said(twice, version, "js") == said(once, version, "js")
    with pytest.raises(BadInput, match="member 'k7'"):
        input_digest(twice.encode(), version=version)


@pytest.mark.parametrize("version", [1, 2])
def test_many_names_are_in_the_order_of_their_code_units(version: Any) -> None:
    escaped = many('"\\ufb33":1', '"\\ud83d\\ude00":2', FILL)
    raw = many(FILL, '"😀":2', '"\ufb33":1')
    members = sorted(json.loads(raw).items(), key=lambda each: each[0].encode("utf-16-be"))
    told = json.dumps(dict(members), ensure_ascii=False, separators=(",", ":"))

    assert said(escaped, version, "strict") == said(raw, version, "strict") == _sha256(told)


@pytest.mark.parametrize(
    ("names", "ordered"),
    [
        ("9 96 951", "9 96 951"),
        ("x 10 5 00 0", "0 5 10 00 x"),
        ("4294967295 7 4294967294 -1", "7 4294967294 -1 4294967295"),
        ("/ : 1a 12 2", "2 12 / 1a :"),
        ("1\u0663 13 2", "2 13 1\u0663"),
    ],
)
def test_in_version_1_indexes_come_first_and_ascend(names: str, ordered: str) -> None:
    text = json.dumps(dict.fromkeys(names.split(), 0), ensure_ascii=False)
    told = json.dumps(dict.fromkeys(ordered.split(), 0), ensure_ascii=False).replace(" ", "")

    assert said(text, 1, "strict") == _sha256(told)
    assert list(json.loads(canonical(json.loads(text), 2))) == sorted(names.split())


def test_the_limits_are_where_they_say() -> None:
    input_digest(b"[" * DEPTH_MAX + b"]" * DEPTH_MAX)
    with pytest.raises(BadInput, match="deeper than 200"):
        input_digest(b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1))
    input_digest(b'"' + b"a" * (SIZE_MAX - 2) + b'"')
    with pytest.raises(BadInput, match="larger than"):
        input_digest(b'"' + b"a" * (SIZE_MAX - 1) + b'"')
    assert DEPTH_MAX < sys.getrecursionlimit() / 2


def test_an_integer_is_exact_or_refused_but_in_js() -> None:
    edge = 2**53 - 1
    for number in (edge, -edge):
        assert input_digest(str(number).encode()) == value_digest(number)
    for number in (edge + 1, -edge - 1, 10**400, 10**5000):
        with pytest.raises(BadInput):
            input_digest(
                f"{number:d}".encode() if abs(number) < 10**4000 else b"1" + b"0" * 5000
            )
        with pytest.raises(BadInput, match="beyond"):
            value_digest(number)
    assert read(b"[9007199254740993, 9007199254740991]", "js") == [9007199254740992.0, edge]


def test_a_refusal_is_a_400_with_a_code() -> None:
    assert issubclass(BadInput, BadRequest)
    assert (BadInput.http_status, BadInput.code) == (400, "E-REQUEST-004")
    assert {"BadInput", "input_digest"} <= set(semel.__all__)


# -- values ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (float("nan"), "range"),
        ([float("inf")], "range"),
        ("\ud800", "surrogate"),
        ({1: 2}, "name is no string"),
        (datetime(2026, 1, 1, tzinfo=UTC), "datetime has no JSON form"),
        ([UNDEFINED], "Undefined"),
        ({"a": b""}, "bytes"),
        (2**53, "beyond"),
    ],
)
def test_version_2_takes_only_what_json_has(value: Any, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        value_digest(value)


def test_version_1_refuses_what_javascript_has_no_value_for() -> None:
    loop: list[Any] = []
    loop.append(loop)
    for value in (object(), {1: 2}, datetime(2026, 1, 1), loop, 1j):  # noqa: DTZ001 - refused
        with pytest.raises(BadInput):
            value_digest(value, version=1)
    with pytest.raises(BadInput, match="deeper"):
        value_digest(loop)


def test_a_value_and_its_text_have_one_digest() -> None:
    text = b'{"b":[1.0,1e-7,"\\u00e9"],"10":null,"9":{"x":true}}'
    versions: list[Any] = [1, 2]
    for version in versions:
        told = input_digest(text, version=version)
        assert value_digest(json.loads(text), version=version) == told
    assert value_digest({"n": BigInt(7)}, version=1) == value_digest({"n": "7"}, version=1)


def test_what_people_approved_keeps_its_digest() -> None:
    question = {"title": "restart", "action": {"pod": "web-1", "n": 1.5, "at": [1, None]}}

    assert digest(question) == _sha256(
        '{"action":{"at":[1,null],"n":1.5,"pod":"web-1"},"title":"restart"}'
    )


# -- keys and envelopes ---------------------------------------------------------------------


def test_a_key_makes_it_an_hmac_that_names_the_key() -> None:
    # RFC 4231, test case 2, as the canonical text.
    keyed = DigestKey("k", b"Jefe")
    text = Input(lambda _version: b"what do ya want for nothing?", 2, [keyed])

    assert text.envelopes() == [
        {
            "version": 2,
            "digest": "hmac-sha256:k:"
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        }
    ]
    assert input_digest(b"[1]", key=NEW) != input_digest(b"[1]", key=OLD)
    assert input_digest(b"[1]", key=NEW) == input_digest(b"[1.0]", key=NEW)
    assert "n" * 8 not in repr(NEW)


def test_the_first_key_writes_and_both_judge() -> None:
    told = Input.of_raw(b"[1]", keys=[NEW, OLD])

    new, old = told.envelopes()

    assert new == {"version": 2, "digest": input_digest(b"[1]", key=NEW)}
    assert old == {"version": 2, "digest": input_digest(b"[1]", key=OLD)}
    assert told.under(old) == old
    assert Input.of_raw(b"[1]", keys=[NEW]).under(old) is None
    assert Input.of_raw(b"[1]").envelopes() == [{"version": 2, "digest": input_digest(b"[1]")}]


def test_a_row_is_judged_under_its_own_version() -> None:
    told = Input.of_raw(b'{"10":1,"9":2}', version=2, decode="js", keys=[NEW])
    plain = {"version": 1, "digest": input_digest(b'{"10":1,"9":2}', version=1)}

    assert told.under({"version": 1, "digest": "sha256:" + "0" * 64}) == plain
    assert told.under({"version": 1, "digest": f"hmac-sha256:k2:{'0' * 64}"}) == {
        "version": 1,
        "digest": input_digest(b'{"10":1,"9":2}', version=1, key=NEW),
    }


@pytest.mark.parametrize(
    "payload",
    [
        {},
        None,
        [],
        {"version": 3, "digest": "sha256:" + "0" * 64},
        {"version": True, "digest": "sha256:" + "0" * 64},
        {"version": 1},
        {"version": 1, "digest": None},
        {"version": 1, "digest": "sha256:0"},
        {"version": 1, "digest": "md5:" + "0" * 64},
        {"version": 1, "digest": "hmac-sha256:gone:" + "0" * 64},
    ],
)
def test_a_payload_that_cannot_be_compared_says_so(payload: Any) -> None:
    assert Input.of_raw(b"1", keys=[NEW]).under(payload) is None


# -- forms ----------------------------------------------------------------------------------


def a_form(**other: Any) -> list[FormPart]:
    told: dict[str, Any] = {"content": b"\x89PNG", "filename": "a.png", "type": "image/png"}
    told |= other
    return [FormPart.of("title", b"hi"), FormPart.of("file", **told)]


def test_a_form_is_its_parts_whatever_pieces_they_come_in() -> None:
    assert form_digest(a_form()) == form_digest(a_form(content=[b"\x89", b"PNG"]))
    assert form_digest(a_form(), key=NEW).startswith("hmac-sha256:k2:")
    assert Input.of_form(a_form()).envelopes() == [
        {"version": 2, "digest": form_digest(a_form())}
    ]


@pytest.mark.parametrize(
    "other",
    [{"content": b"\x89PNH"}, {"filename": "b.png"}, {"filename": None}, {"type": "image/gif"}],
)
def test_another_part_is_another_form(other: dict[str, Any]) -> None:
    assert form_digest(a_form(**other)) != form_digest(a_form())


def test_parts_count_in_their_order_and_are_no_json() -> None:
    parts = a_form()
    rows = [[part.name, part.filename, part.type, part.sha256] for part in parts]

    assert form_digest(parts[::-1]) != form_digest(parts)
    assert form_digest(parts) != value_digest(rows)
    assert form_digest([]) not in {input_digest(None), value_digest([])}


def test_a_form_that_cannot_be_digested_is_refused() -> None:
    with pytest.raises(BadInput, match="surrogate"):
        form_digest([FormPart.of("\udcff", b"")])
    with pytest.raises(BadInput, match="10000 parts"):
        form_digest([FormPart.of("a", b"")] * (PARTS_MAX + 1))


def _sha256(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
