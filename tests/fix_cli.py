"""Runs the command line in this process, with no configuration but what a test tells."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from semel.ops.cli import cli

#: What the tests themselves are told.
OURS = {"SEMEL_TEST_HOME", "SEMEL_PG_BIN", "SEMEL_PG_USER"}
AWAY = "host=/nowhere dbname=x"
STRANGER = "01a22cd8-ca25-7d51-9c7c-6c90a3d029c6"


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Semel = Callable[..., Said]


@pytest.fixture
def semel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Semel:
    """Run one command, with no configuration but what *environ* tells."""

    def call(*words: str, **environ: str) -> Said:
        with monkeypatch.context() as own:
            own.chdir(tmp_path)
            for name in list(os.environ):
                if name.startswith("SEMEL_") and name not in OURS:
                    own.delenv(name)
            for name, value in environ.items():
                own.setenv(name, value)
            code = cli(words)
        return Said(code, *capsys.readouterr())

    return call


@pytest.fixture
def here(semel: Semel, dsn: str) -> Semel:
    """The same, with a database."""

    def call(*words: str, **environ: str) -> Said:
        return semel(*words, **{"SEMEL_DSN": dsn, **environ})

    return call
