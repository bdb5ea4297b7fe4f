"""The command line refuses in a line, with a remedy and a fixed exit code."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fix_cli import AWAY, STRANGER, Semel
from fix_world import Conn, start_run, until
from semel.core import claims, inbox, runs
from semel.db.execute import run

# -- misuse and refusals --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "because"),
    [
        (["nosuch"], "No such command 'nosuch'"),
        (["run", "show", "abc"], "'abc' is no id"),
        (["run", "show"], "Missing argument"),
        (["run", "start", "mail", "--input", "{"], "--input is no JSON"),
        (["run", "start", "mail", "--priority", "10"], "--priority"),
        (
            ["run", "start", "mail", "--delay", "5"],
            "delay is '5': write a number with its unit",
        ),
        (["run", "start", "mail", "--deadline", "0s"], "deadline is more than 0"),
        (
            ["run", "start", "mail", "--delay", "1h", "--deadline", "60m"],
            "is not after delay 1h",
        ),
        (["run", "start", "mail", "--unique", ""], "unique is a text of 1 to 255"),
        (["run", "list", "--status", "DONE"], "DONE"),
        (["run", "list", "--limit", "0"], "--limit"),
        (["run", "list", "--project", "No Slug"], "--project is 'No Slug'"),
        (["migrate", "--check", "--print"], "name one"),
        (["token", "create", "--role", "king"], "king"),
        (["worker"], "Missing argument"),
        (["worker", "nosuch.py"], "no such file"),
        (["event", "explain", "--source", "s", "--id", "\udcff"], "is not UTF-8"),
        (["event", "replay", "7"], "'7' is no id"),
        (["event", "import-legacy", "t"], "Missing option '--source'"),
        (["agent", "pause", "no agent"], "is no agent"),
    ],
)
def test_misuse_is_told_in_a_line_and_exits_2(
    semel: Semel, words: list[str], because: str
) -> None:
    said = semel(*words, SEMEL_DSN=AWAY)
    as_json = semel(*words, "--json", SEMEL_DSN=AWAY)

    assert (said.code, said.out) == (2, "")
    assert because in said.err
    assert said.err.startswith("E-")
    assert "Traceback" not in said.err
    assert set(json.loads(as_json.err)) == {"code", "detail", "remedy"}


@pytest.mark.parametrize(
    ("words", "code"), [(["run", "start", "no agent"], 1), (["run", "show", STRANGER], 1)]
)
def test_a_refusal_exits_1(here: Semel, words: list[str], code: int) -> None:
    assert here(*words).code == code


def test_an_impossible_setting_exits_2_and_is_named(semel: Semel) -> None:
    said = semel("run", "list", SEMEL_WORKER_LEASE="30")

    assert (said.code, said.err.split()[0]) == (2, "E-CONFIG-001")
    assert "SEMEL_WORKER_LEASE" in said.err


def test_a_dsn_that_is_none_exits_2_and_is_not_repeated(semel: Semel) -> None:
    said = semel("run", "list", SEMEL_DSN="a secret")

    assert (said.code, "secret" in said.err) == (2, False)


@pytest.mark.parametrize(
    "words", [["run", "list"], ["token", "list"], ["migrate"], ["upkeep", "--once"]]
)
def test_a_database_out_of_reach_exits_3(semel: Semel, words: list[str]) -> None:
    said = semel(*words, SEMEL_DSN=AWAY)

    assert (said.code, said.out) == (3, "")
    assert said.err.startswith("E-DB-001 ")
    assert "Traceback" not in said.err


def test_where_there_has_never_been_a_database_it_says_how_to_start_one(semel: Semel) -> None:
    said = semel("run", "list")

    assert said.code == 3
    assert "`semel up` or `semel db start`" in said.err


def test_a_database_without_our_schema_is_refused(semel: Semel, empty_dsn: str) -> None:
    said = semel("run", "list", SEMEL_DSN=empty_dsn)

    assert (said.code, said.err.split()[0]) == (1, "E-DB-002")
    assert "run `semel migrate`" in said.err


def test_only_who_takes_requests_needs_the_secrets(here: Semel, tmp_path: Path) -> None:
    (tmp_path / "semel.toml").write_text(
        '[sources.bot]\nchannel = "telegram"\nagent = "a"\nsecrets = ["env:ABSENT"]\n'
    )

    for words in (["run", "list"], ["event", "list"], ["agent", "list"], ["config"]):
        assert here(*words).code == 0, words
    assert here("upkeep", "--once").code == 0
    assert "env:ABSENT" in here("config").out
    for words in (["serve"], ["up"], ["doctor"]):
        said = here(*words)
        assert (said.code, said.err.split()[0]) == (2, "E-CONFIG-001"), words
        assert "set the variable ABSENT" in said.err


def test_an_embedded_server_that_cannot_be_had_is_refused_by_its_code(
    semel: Semel, tmp_path: Path
) -> None:
    (tmp_path / ".semel").mkdir(mode=0o777)
    (tmp_path / ".semel").chmod(0o777)

    said = semel("db", "start")

    assert (said.code, said.err.split()[0]) == (3, "E-DB-003")
    assert "Traceback" not in said.err


# -- the schema, the settings, the database -------------------------------------------------


def test_migrate_applies_once_and_check_tells_whether(semel: Semel, empty_dsn: str) -> None:
    assert semel("migrate", "--check", SEMEL_DSN=empty_dsn).code == 1
    applied = semel("migrate", "--json", SEMEL_DSN=empty_dsn).json["applied"]
    assert "functions/runs.sql" in applied
    assert semel("migrate", "--check", SEMEL_DSN=empty_dsn).code == 0
    assert semel("migrate", "--json", SEMEL_DSN=empty_dsn).json["applied"] == []


def test_migrate_prints_the_schema_without_a_database(semel: Semel) -> None:
    said = semel("migrate", "--print")

    assert said.out.startswith("begin;\n")
    assert said.out.rstrip().endswith("commit;")


def test_config_shows_what_is_in_force_and_no_password(semel: Semel) -> None:
    shown = semel("config", "--json", SEMEL_DSN="postgresql://me:pass@h/d", SEMEL_PORT="9").json

    assert (shown["dsn"], shown["server"]["port"]) == ("host=h dbname=d user=me", 9)


def test_a_home_that_no_folder_can_be_at_is_refused(semel: Semel, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    for words in (("db", "stop"), ("db", "status"), ("db", "start"), ("run", "list")):
        for home in ("file", "file/below"):
            said = semel(*words, SEMEL_HOME=str(tmp_path / home))
            assert said.code == 2, words
            assert "is no folder" in said.err


def test_an_input_that_cannot_be_kept_is_misuse(semel: Semel) -> None:
    for told in ("[" * 3000 + "]" * 3000, "{", '"\\u0000"', '"\\ud800"', "1e999", "9" * 5000):
        said = semel("run", "start", "a", "--input", told)
        assert (said.code, said.out) == (2, ""), told[:20]
        assert "--input is no JSON that can be kept" in said.err


@pytest.mark.parametrize("source", ["a b", "", "a/b", "ä", "s" * 65])
def test_a_token_for_what_is_no_source_is_misuse(semel: Semel, source: str) -> None:
    said = semel("token", "create", "--role", "producer", "--source", source)

    assert said.code == 2
    assert "is no source" in said.err


def test_a_place_to_stop_at_that_is_none_is_refused(semel: Semel) -> None:
    said = semel("run", "list", SEMEL_STOP_AT="bogus")

    assert said.code == 2
    assert "SEMEL_STOP_AT is 'bogus': one of ingress.accept.before" in said.err


def test_a_fault_of_ours_is_a_code_and_its_traceback_is_for_who_asks(
    semel: Semel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_settings: object, **_told: object) -> None:
        raise RuntimeError("first line\nsecond")

    monkeypatch.setattr("semel.ops.cli.look.checks.examine", fail)
    plain, told = semel("doctor"), semel("doctor", SEMEL_DEBUG="1")
    as_json = json.loads(semel("doctor", "--json").err)

    assert plain.code == told.code == 1
    assert plain.err.startswith("E-INTERNAL-001 RuntimeError: first line\n")
    assert "Traceback" not in plain.err
    assert "SEMEL_DEBUG=1" in plain.err
    assert "Traceback" in told.err
    assert as_json["code"] == "E-INTERNAL-001"


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        ("import nosuch_module", "ModuleNotFoundError: No module named 'nosuch_module'"),
        ("import rich.nosuch", "ModuleNotFoundError: No module named 'rich.nosuch'"),
        ("x = (", "SyntaxError: '(' was never closed"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("", "found 0 Apps"),
    ],
)
def test_an_application_that_cannot_be_imported_is_refused(
    semel: Semel, tmp_path: Path, program: str, sentence: str
) -> None:
    (tmp_path / "broken_app.py").write_text(program)

    said = semel("worker", "broken_app.py", SEMEL_DSN=AWAY)

    assert said.code == 2
    assert sentence in said.err
    assert "Traceback" not in said.err


def test_db_speaks_of_the_embedded_server_only(semel: Semel, tmp_path: Path) -> None:
    state = semel("db", "status", "--json").json

    assert (state["state"], state["home"]) == ("stopped", str(tmp_path / ".semel"))
    assert semel("db", "stop").out == "nothing was running\n"
    assert semel("db", "start", SEMEL_DSN=AWAY).code == 2
    assert semel("db", "psql").code == 3


def test_upkeep_once_sweeps_and_says_what_it_did(here: Semel, conn: Conn) -> None:
    start_run(conn)
    run(conn, claims.run_claim("p", "a", "w", limit=1, lease=inbox.MEMORY))

    assert here("upkeep", "--once", "--json").json["projects"] == 1


def test_upkeep_purges_by_a_told_moment_in_tests_only(here: Semel, conn: Conn) -> None:
    run(conn, runs.run_start("p", "a", 1, key="k"))
    year = str(time.time() + 365 * 86_400)

    assert here("upkeep", "--once", "--now", year).code == 2
    swept = here("upkeep", "--once", "--now", year, "--json", SEMEL_TESTING="1")

    assert swept.json["purged"] >= 1
    assert here("event", "list", "--json").out == ""


# -- the process itself ---------------------------------------------------------------------


def _started(*words: str, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "semel", *words],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_without_its_extra_it_says_what_to_install() -> None:
    program = "import sys; sys.modules['typer'] = None; from semel.__main__ import main; main()"

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "typer is not installed: pip install 'semel[cli]'\n"


def test_ctrl_c_is_quiet_also_while_the_database_is_awaited(tmp_path: Path) -> None:
    with _started("upkeep", SEMEL_DSN=AWAY, SEMEL_HOME=str(tmp_path)) as process:
        assert process.stderr
        assert "database.lost" in process.stderr.readline()

        process.send_signal(signal.SIGINT)

        assert process.wait(10) == 130
        assert "Traceback" not in process.stderr.read()


def test_upkeep_waits_for_its_database_and_drains_on_sigterm(dsn: str) -> None:
    with _started("upkeep", SEMEL_DSN=dsn) as process:
        log = process.stderr
        assert log
        until(lambda: "upkeep.started" in log.readline())

        process.terminate()

        assert process.wait(10) == 0


def test_a_process_refuses_a_schema_that_is_not_its_own(empty_dsn: str) -> None:
    with _started(
        "worker", str(Path(__file__).parents[2] / "examples/oncall.py"), SEMEL_DSN=empty_dsn
    ) as process:
        _, said = process.communicate(timeout=20)

    assert process.returncode == 1
    assert "E-DB-002 this database has no semel schema: run `semel migrate`" in said
