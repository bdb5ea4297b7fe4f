"""Every line our processes log is declared, readable, and free of what must stay secret."""

import ast
import json
import logging
from pathlib import Path

import pytest

from semel import log

SRC = Path(log.__file__).parent


def calls() -> list[tuple[str, ast.Call]]:
    return [
        (f"{path.relative_to(SRC)}:{node.lineno}", node)
        for path in SRC.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "log.event"
    ]


def test_every_event_in_the_sources_is_declared_with_its_fields() -> None:
    wrong = []
    for where, call in calls():
        name = call.args[0]
        assert isinstance(name, ast.Constant), where
        assert isinstance(name.value, str), where
        declared = log.EVENTS.get(name.value)
        if declared is None:
            wrong.append(f"{where}: {name.value} is not in EVENTS")
            continue
        given = {keyword.arg or "*" for keyword in call.keywords}
        extra = set() if "*" in declared.fields else given - set(declared.fields)
        wrong += [f"{where}: {name.value} has no field {field}" for field in sorted(extra)]
    assert not wrong, "\n".join(wrong)


def test_every_declared_event_is_a_noun_and_a_past_verb() -> None:
    for name in log.EVENTS:
        noun, verb = name.split(".")
        assert noun.isidentifier()
        assert verb.isidentifier()


def line(formatter: logging.Formatter, name: str, **fields: object) -> str:
    record = logging.LogRecord("semel", logging.INFO, "", 0, name, (), None)
    record.semel_fields = fields
    return formatter.format(record)


def test_a_json_line_carries_the_event_and_its_fields() -> None:
    told = json.loads(line(log.JsonLines(), "run.lost", run="r1", fence=3, reason="台北 \n x"))
    assert told["event"] == "run.lost"
    assert (told["run"], told["fence"], told["reason"]) == ("r1", 3, "台北 \n x")
    assert told["at"].endswith("+00:00")


def test_a_field_cannot_begin_a_line_of_its_own() -> None:
    told = line(log.Lines(), "run.lost", reason='x\n12:00:00 ERROR forged="1"')
    assert "\n" not in told
    assert '\\n12:00:00 ERROR forged=\\"1\\"' in told


def test_a_long_field_is_cut() -> None:
    told = json.loads(line(log.JsonLines(), "run.lost", reason="x" * 10_000))
    assert len(told["reason"]) == log.FIELD_CHARS_MAX


def test_an_error_is_told_without_the_row_that_the_database_quotes() -> None:
    error = ValueError("duplicate key\nDETAIL: Key (token)=(hunter2)")
    record = logging.LogRecord("x", logging.ERROR, "", 0, "failed", (), None)
    record.exc_info = (type(error), error, None)
    told = log.JsonLines().format(record)
    assert "duplicate key" in told
    assert "hunter2" not in told


def test_stderr_that_is_no_terminal_gets_json(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        log.setup()
        log.event("server.stopped")
        written = json.loads(capsys.readouterr().err)
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    assert written["event"] == "server.stopped"
    assert written["level"] == "info"
