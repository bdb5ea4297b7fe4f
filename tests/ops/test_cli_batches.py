"""`semel batch`, and what the command line changes of many runs at once."""

from pathlib import Path
from typing import Any

import pytest

from fix_cli import Semel
from fix_world import Conn, one, start_run, status
from semel.core import transitions
from semel.db.execute import run

P = ("--project", "p")


def test_a_batch_is_started_from_a_file_listed_and_shown(
    here: Semel, conn: Conn, tmp_path: Path
) -> None:
    file = tmp_path / "inputs.jsonl"
    file.write_text('{"n": 1}\n\n[2]\n"é"\n')
    words = ("batch", "start", "a", "--file", str(file), "--name", "b", *P, "--json")

    first, again = here(*words), here(*words)

    assert ("new", 3) == (first.json["outcome"], first.json["total"])
    assert ("duplicate", 3) == (again.json["outcome"], again.json["total"])
    [listed] = here("batch", "list", "--json", *P).lines
    shown = here("batch", "show", "b", "--json", *P).json
    assert listed == shown
    assert (3, 3, 0) == (shown["total"], shown["pending"], shown["done"])
    assert "E-BATCH-001" in here("batch", "show", "x", *P).err

    file.write_text("1\n{\n")
    bad = here("batch", "start", "a", "--file", str(file), *P)
    assert 1 == bad.code
    assert "line 2: the body is not JSON" in bad.err
    assert 3 == one(conn, "select count(*) from semel.runs")
    assert 2 == here("batch", "start", "a", "--file", "/nowhere", *P).code


def test_runs_of_a_filter_are_cancelled_and_retried_in_pages(
    here: Semel, conn: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("semel.core.bulk.PAGE", 2)
    mine = [start_run(conn, "a") for _ in range(5)]
    other = start_run(conn, "b")

    dry = here("run", "cancel", "--agent", "a", "--dry-run", "--json", *P).json
    assert (5, 0, True) == (dry["matched"], dry["done"], dry["dry_run"])
    assert "PENDING" == status(conn, mine[0])

    done = here("run", "cancel", "--agent", "a", "--reason", "why", "--json", *P).json
    assert (5, {"won": 5}, []) == (done["done"], done["outcomes"], done["failures"])
    assert {"CANCELLED"} == {status(conn, each) for each in mine}
    assert "PENDING" == status(conn, other)

    assert "0 of 0 runs" in here("run", "retry", "--agent", "a", *P).out  # FAILED ones
    words = ("run", "retry", "--agent", "a", "--status", "CANCELLED", *P)
    assert "5 of 5 runs pending again" in here(*words).out
    assert {"PENDING"} == {status(conn, each) for each in mine}


def test_what_a_state_does_not_allow_is_counted_and_named(here: Semel, conn: Conn) -> None:
    failed, held = start_run(conn, unique="u"), None
    run(conn, transitions.run_cancel("p", failed))
    held = start_run(conn, unique="u")

    done = here("run", "retry", "--status", "CANCELLED", "--json", *P).json

    assert (1, 0, {"refused": 1}) == (done["matched"], done["done"], done["outcomes"])
    assert [str(failed)] == [each["run_id"] for each in done["failures"]]
    assert "PENDING" == status(conn, held)
    assert str(failed) in here("run", "retry", "--status", "CANCELLED", *P).out


def test_a_filter_has_a_time_or_an_age(here: Semel, conn: Conn) -> None:
    old, young = start_run(conn), start_run(conn)
    conn.execute(
        "update semel.run set created_at = now() - interval '3 hours' where run_id = %s", (old,)
    )
    assert 0 == here("run", "cancel", "--before", "4h", "--json", *P).json["matched"]
    assert (
        0 == here("run", "cancel", "--before", "2020-01-01T00:00Z", "--json", *P).json["done"]
    )
    assert 1 == here("run", "cancel", "--before", "2h", "--json", *P).json["done"]
    assert ["CANCELLED", "PENDING"] == [status(conn, each) for each in (old, young)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("cancel",), "which runs?"),
        (("retry", "--dry-run"), "which runs?"),
        (("cancel", "--status", "FAILED"), "only PENDING"),
        (("retry", "--status", "RUNNING"), "can be moved so"),
        (("cancel", "--before", "yesterday"), "write a time with its zone"),
        (("cancel", "--before", "2026-11-30T12:00:00"), "write a time with its zone"),
        (("cancel", "--before", "999999999d"), "a hundred years at most"),
        (("cancel", "--before", "0001-01-01T00:00:00+14:00"), "a hundred years at most"),
        (("cancel", "01a22cd8-ca25-7d51-9c7c-6c90a3d029c6", "--agent", "a"), "write one"),
    ],
)
def test_everything_by_accident_is_a_misuse(here: Semel, words: Any, said: str) -> None:
    answer = here("run", *words, *P)
    assert 2 == answer.code
    assert said in answer.err


def test_a_priority_is_changed_and_a_call_is_debounced(here: Semel, conn: Conn) -> None:
    run_id = str(start_run(conn))
    assert "has priority 9" in here("run", "priority", run_id, "9").out
    assert "had it before" in here("run", "priority", run_id, "9").out
    assert 9 == one(conn, "select priority from semel.runs")
    run(conn, transitions.run_cancel("p", one(conn, "select run_id from semel.runs")))
    assert "E-RUN-002" in here("run", "priority", run_id, "1").err

    words = ("run", "start", "a", "--debounce", "30s", "--debounce-key", "k", *P)
    first, second = here(*words, "--input", "1"), here(*words, "--input", "2")
    assert first.out.strip() == second.out.split()[0]
    assert "has this input now" in second.out
    assert "E-REQUEST-001" in here("run", "start", "a", "--debounce", "30s", *P).err
