"""The section [spool]: what may be written in it, and what is never shown."""

from pathlib import Path

import pytest

from semel.config import load
from semel.errors import BadConfig

SPOOL = """
[spool]
path = "spool"
keys = ["env:NEW_KEY", "file:old.key"]
bytes_max = 2000000
wait = "500ms"
"""
SOURCE = """
[sources.forge]
channel = "gitea"
agent = "review"
secrets = ["env:FORGE"]
spool = true
"""


def read(tmp_path: Path, text: str, **environ: str) -> object:
    (tmp_path / "semel.toml").write_text(text)
    return load({"FORGE": "s", **environ}, tmp_path)


def test_a_spool_is_read_with_its_keys_by_reference(tmp_path: Path) -> None:
    (tmp_path / "semel.toml").write_text(SPOOL + SOURCE)
    told = load({"FORGE": "s", "SEMEL_SPOOL_WAIT": "2s"}, tmp_path)
    assert told.spool.folder == tmp_path / "spool"
    assert told.shown()["spool"] == {
        "path": str(tmp_path / "spool"),
        "keys": ["env:NEW_KEY", "file:old.key"],
        "bytes_max": 2_000_000,
        "wait": "2s",
    }
    assert told.sources["default", "forge"].spool


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SOURCE, r"\[sources.forge\] spool = true, and there is no \[spool\]"),
        (
            '[spool]\npath = "x"',
            r"\[spool\] needs a path and keys, since what is kept there is",
        ),
        ('[spool]\nkeys = ["env:A"]', r"\[spool\] needs a path and keys"),
        ('[spool]\npath = "x"\nkeys = ["0123"]', r"\[spool\] keys: a secret is written out"),
        (
            SPOOL.replace('"file', '"env:B", "file'),
            r"\[spool\] keys has 3: the one that writes",
        ),
        (SPOOL.replace("2000000", "1000"), r"\[spool\] bytes_max is 1000: 1048576 to"),
        (SPOOL.replace("500ms", "10s"), r"\[spool\] wait is 10s: 50ms to 4s"),
        (SPOOL + "size = 1", r"\[spool\] has an unknown key 'size'"),
        (
            SPOOL
            + SOURCE.replace('"gitea"', '"telegram-poll"').replace("env:FORGE", "env:BOT"),
            r"\[sources.forge\] spool is a setting of channel",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_the_mend(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadConfig, match=said):
        read(tmp_path, text, BOT="123456:" + "A" * 35)


def test_keys_are_looked_up_by_who_needs_them(tmp_path: Path) -> None:
    (tmp_path / "semel.toml").write_text(SPOOL.replace("file:old.key", "env:OLD_KEY"))
    told = load({}, tmp_path).spool
    assert told.keys_read({"NEW_KEY": "n" * 32, "OLD_KEY": "o" * 32}) == [b"n" * 32, b"o" * 32]
    with pytest.raises(BadConfig, match="env:OLD_KEY is empty or not there"):
        told.keys_read({"NEW_KEY": "n" * 32})
    with pytest.raises(BadConfig, match="env:OLD_KEY is shorter than 32 bytes: `openssl rand"):
        told.keys_read({"NEW_KEY": "n" * 32, "OLD_KEY": "short"})


def test_without_the_package_that_encrypts_it_is_said_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from semel.edges.spool import seal

    monkeypatch.setattr(seal, "find_spec", lambda _name: None)
    with pytest.raises(BadConfig, match=r"pip install 'semel\[spool\]'"):
        seal.Keys([b"k" * 32])
