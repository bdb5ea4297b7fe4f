"""A project's digest keys are told by reference, and looked up only by who begins operations."""

from pathlib import Path
from typing import Any

import pytest

from semel.config import DigestKey, LedgerSettings, load
from semel.errors import BadConfig

TWO = '[ledger.shop]\ndigest_keys = { k2 = "env:SEMEL_KEY_NEW", k1 = "env:KEY_OLD" }\n'
NEW, OLD = "n" * 32, "o" * 32


def told(tmp_path: Path, text: str, **environ: str) -> Any:
    (tmp_path / "semel.toml").write_text(text)
    return load(environ, tmp_path)


def test_keys_are_read_in_their_order_when_they_are_asked_for(tmp_path: Path) -> None:
    there = {"SEMEL_KEY_NEW": NEW, "KEY_OLD": OLD}

    ledger = told(tmp_path, TWO, **there).ledger["shop"]

    assert ledger.keys(there) == (
        DigestKey("k2", NEW.encode()),
        DigestKey("k1", OLD.encode()),
    )


def test_who_begins_no_operation_needs_no_key(tmp_path: Path) -> None:
    settings = told(tmp_path, TWO)

    assert settings.shown()["ledger"] == {
        "shop": {"digest_keys": {"k2": "env:SEMEL_KEY_NEW", "k1": "env:KEY_OLD"}}
    }
    assert told(tmp_path, "").ledger == {}
    assert told(tmp_path, "[ledger.shop]\n").ledger["shop"].keys({}) == ()


def test_a_key_from_a_file_is_its_text_and_is_never_shown(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{NEW}\n")
    ledger = LedgerSettings(project="shop", digest_keys=(("k", f"file:{tmp_path / 'key'}"),))

    assert ledger.keys({}) == (DigestKey("k", NEW.encode()),)
    assert NEW not in repr(ledger.keys({})) + repr(ledger) + str(ledger.shown())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("ledger = 1", "[ledger] is 1: it is a table"),
        ("[ledger]\nshop = 1", "[ledger.shop] is 1: it is a table"),
        ("[ledger.Shop]", "[ledger.Shop] project is 'Shop'"),
        ("[ledger.shop]\ndigest_key = {}", "(did you mean 'digest_keys'?)"),
        ("[ledger.shop]\ndigest_keys = ['env:K']", 'as in { k1 = "env:LEDGER_KEY" }'),
        ("[ledger.shop]\ndigest_keys = {k = 1}", 'as in { k1 = "env:LEDGER_KEY" }'),
        ("[ledger.shop]\ndigest_keys = {k = 'abc'}", "digest_keys k: a secret is written out"),
        ("[ledger.shop]\ndigest_keys = {'a:b' = 'env:K'}", "a key's name is 1 to 32"),
        (
            "[ledger.shop]\ndigest_keys = {a = 'env:A', b = 'env:B', c = 'env:C'}",
            "digest_keys has 3 keys",
        ),
    ],
)
def test_an_impossible_ledger_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(BadConfig) as refused:
        told(tmp_path, text)

    assert sentence in str(refused.value)
    assert "abc" not in str(refused.value)


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        ({"SEMEL_KEY_NEW": NEW}, "digest_keys k1: env:KEY_OLD is empty or not there"),
        ({"SEMEL_KEY_NEW": "short", "KEY_OLD": OLD}, "digest_keys k2 is shorter than 32 bytes"),
    ],
)
def test_a_key_that_is_not_there_or_too_short_is_refused(
    tmp_path: Path, environ: dict[str, str], sentence: str
) -> None:
    ledger = told(tmp_path, TWO).ledger["shop"]

    with pytest.raises(BadConfig) as refused:
        ledger.keys(environ)

    assert sentence in str(refused.value)
    assert "[ledger.shop]" in str(refused.value)
    assert "short " not in str(refused.value).replace("shorter ", "")
