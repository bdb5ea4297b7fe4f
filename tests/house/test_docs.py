"""The docs say what the code does: codes, commands, settings, and lines that people paste."""

import asyncio
import importlib.util
import json
import re
from dataclasses import MISSING, fields
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest
from typer.main import get_command

from fix_world import Conn, one
from semel import App, Run
from semel.config import (
    ApprovalSettings,
    LedgerSettings,
    NotifierSettings,
    ReconcileSettings,
    Retention,
    Server,
    Settings,
    Source,
    SpoolSettings,
    WorkerSettings,
    load,
)
from semel.config.hmac import HmacSettings
from semel.config.settings import FOLLOWS
from semel.config.values import shown
from semel.db import migrate
from semel.db.stops import STOPS
from semel.edges.channels import READERS
from semel.errors import tree
from semel.ops.cli import app as commands
from semel.ops.cli.up import curl
from semel.runtime.app import load as load_app
from semel.testing import POINTS, World

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    page.relative_to(ROOT)
    for page in sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
    if "_build" not in page.parts
]
CODES = {error.code for error in tree()}
EVERYWHERE = {"--json", "--project", "--help"}


def text(name: str) -> str:
    return (ROOT / name).read_text()


def blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text(name), re.DOTALL | re.MULTILINE)


# -- errors ---------------------------------------------------------------------------------


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_errors_is_the_tree_of_errors() -> None:
    page = text("docs/errors.md")

    assert page == generator().page(page), "run: python docs/generate.py"
    assert set(re.findall(r"^\| `(E-[A-Z]+-\d+)`", page, re.MULTILINE)) == CODES


def test_each_error_has_a_code_and_a_state_of_its_own() -> None:
    errors = tree()
    assert len({error.code for error in errors}) == len(errors)
    assert len({error.sqlstate for error in errors}) == len(errors)


def test_sql_raises_and_records_only_codes_that_there_are() -> None:
    sql = "".join(part.sql for part in migrate.parts())

    raised = set(re.findall(r"errcode\s*=\s*'(SM\w\d\d)'", sql))
    assert raised <= {error.sqlstate for error in tree()}
    assert set(re.findall(r"E-[A-Z]+-\d{3}", sql)) <= CODES


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_code_that_a_page_names_is_one(page: Path) -> None:
    assert set(re.findall(r"E-[A-Z]+-\d{3}", (ROOT / page).read_text())) <= CODES


# -- commands and settings ------------------------------------------------------------------


def spelled(command: Any, *before: str) -> list[tuple[list[str], set[str]]]:
    """Every command below *command*: its words, and its own options."""
    if hasattr(command, "commands"):
        return [
            each
            for name, inner in command.commands.items()
            for each in spelled(inner, *before, name)
        ]
    options = {o for p in command.params for o in p.opts if o.startswith("--")}
    return [([*before], options - EVERYWHERE)]


@pytest.mark.parametrize(
    ("words", "options"),
    [pytest.param(*each, id=" ".join(each[0])) for each in spelled(get_command(commands))],
)
def test_a_command_is_documented_with_its_options(words: list[str], options: set[str]) -> None:
    rows = part("docs/operate.md", "## Commands")

    own = [row for row in rows if re.match(rf"\| `semel {' '.join(words)}\b", row)]
    [row] = own or [
        row
        for row in rows
        if row.startswith(f"| `semel {words[0]} ")
        and re.search(rf"\b{words[-1]}\b", row.split(" | ")[0])
    ]
    assert options <= set(re.findall(r"--[a-z]+(?:-[a-z]+)*", row))


def part(page: str, heading: str) -> list[str]:
    """The lines below *heading*, up to the next."""
    return text(page).partition(f"{heading}\n")[2].partition("\n## ")[0].splitlines()


def documented(heading: str, key: str) -> list[str]:
    """The cells of the row that documents *key*."""
    rows = part("docs/configuration.md", f"## {heading}")
    [cells] = [row.split(" | ") for row in rows if row.startswith(f"| `{key}` |")]
    return [cell.strip("| `") for cell in cells]


@pytest.mark.parametrize(
    ("section", "kind"),
    [
        ("worker", WorkerSettings),
        ("server", Server),
        ("retention", Retention),
        ("approvals", ApprovalSettings),
        ("spool", SpoolSettings),
    ],
)
def test_a_setting_is_documented_with_its_variable_and_default(
    section: str, kind: type[Any]
) -> None:
    for field in fields(kind):
        variable = f"SEMEL_{section}_{field.name}".upper().replace("_SERVER_PORT", "_PORT")
        found = documented(f"[{section}]", field.name)
        assert found[1] == variable
        if field.default is not FOLLOWS:
            default = "never" if field.default is None else shown(field.default)
            assert found[2] == default, field.name


def test_a_setting_outside_sections_is_documented() -> None:
    for key in ("dsn", "home", "project", "pooler", "public_url"):
        assert documented("Where things are", key)[1] == f"SEMEL_{key.upper()}"
    assert documented("Where things are", "project")[2] == Settings().project


def test_a_setting_of_a_source_is_documented_with_its_default() -> None:
    for field in fields(Source):
        if field.name == "name":
            continue
        default = documented("Sources", field.name)[1]
        if field.default is MISSING:
            assert default == "required"
        elif field.default is None:
            assert default == "none"
        elif field.name != "secrets":
            assert default == _plain(field.default)


def test_how_a_sender_signs_is_documented_with_its_default() -> None:
    rows = part("docs/channels/hmac.md", "## Settings")
    told = {
        row.split(" | ")[0].strip("| `"): row.split(" | ")[1].strip("` ")
        for row in rows
        if " | " in row
    }
    for field in fields(HmacSettings):
        if field.name == "source":
            continue
        wanted = "none" if field.default in {None, ""} else shown(field.default)
        assert told[field.name] == ("required" if field.name == "header" else wanted)


def test_how_alertmanager_is_asked_is_documented_with_its_default() -> None:
    rows = part("docs/channels/alertmanager.md", "## Reconcile")
    told = {
        row.split(" | ")[0].strip("| `"): row.split(" | ")[1].strip("` ")
        for row in rows
        if " | " in row
    }
    for field in fields(ReconcileSettings):
        if field.name not in {"source", "header"}:
            wanted = "none" if field.default is None else shown(field.default)
            assert told[field.name] == ("required" if field.name == "url" else wanted)


def test_every_channel_has_a_page() -> None:
    pages = {path.stem for path in (ROOT / "docs" / "channels").glob("*.md")} - {"index"}
    assert set(READERS) == pages


def test_a_setting_of_a_notifier_is_documented_with_its_default() -> None:
    for field in fields(NotifierSettings):
        if field.name == "name":
            continue
        default = documented("Notifiers", field.name)[1]
        if field.default is MISSING:
            assert default == "required"
        elif field.default is None:
            assert default in {"none", "the provider's"}
        else:
            assert default == _plain(field.default)


def test_a_setting_of_a_ledger_is_documented() -> None:
    for field in fields(LedgerSettings):
        if field.name != "project":
            assert documented("Ledger", field.name)[1] == "none"


def _plain(value: Any) -> str:
    return (
        str(value).lower()
        if isinstance(value, bool)
        else {"2m": "120s"}.get(shown(value), shown(value))
    )


# -- what people paste ----------------------------------------------------------------------


def test_the_readme_shows_the_two_commands_and_the_line_that_up_prints() -> None:
    settings = load({"SEMEL_CONFIG": "examples/semel.toml"}, ROOT)
    printed = curl(settings, "examples/oncall.py", "http://127.0.0.1:8750", ROOT)

    lines = "".join(blocks("README.md", "console")).splitlines()

    assert {"$ make up", "$ make test"} <= set(lines)
    assert f"$ {printed}" in lines
    assert f"$ {printed}" in "".join(blocks("docs/start.md", "console")).splitlines()


def test_make_has_the_targets_that_the_docs_name() -> None:
    targets = set(re.findall(r"^([a-z]+):", text("Makefile"), re.MULTILINE))

    named = {
        name
        for page in PAGES
        for name in re.findall(r"`?make ([a-z]+)[`\n ]", (ROOT / page).read_text())
    }
    assert {"up", "test", "check", "bench", "docs", "clean"} <= targets
    assert {"up", "test", "check", "bench"} <= named
    assert named & {"up", "test", "check", "bench", "docs", "clean"} <= targets


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_link_leads_to_a_page(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / page).read_text()):
        assert (ROOT / page.parent / target).exists(), target


# -- the examples ---------------------------------------------------------------------------


def a_run(value: Any) -> Run:
    return Run(
        id=UUID(int=1), project="p", agent="triage", input=value, attempt=1, fence=1, worker="w"
    )


@pytest.mark.parametrize(
    ("node", "decision", "status", "done"),
    [
        ("node1", "approve", "COMPLETED", ["drained", "restarted"]),
        ("node1", "reject", "COMPLETED", []),
        ("node9", "approve", "FAILED", ["drained", "restarted", "put back"]),
    ],
)
@pytest.mark.parametrize("crash", [None, *POINTS])
def test_the_example_asks_acts_and_undoes(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    dsn: str,
    *,
    node: str,
    decision: Any,
    status: str,
    done: list[str],
    crash: str | None,
) -> None:
    """Each act once, wherever the worker dies after the decision."""
    monkeypatch.setenv("ONCALL_SECONDS", "0")
    monkeypatch.setenv("SEMEL_HOME", str(tmp_path))
    app = load_app(str(ROOT / "examples/oncall.py"))
    alert = json.loads(text("examples/alert.json").replace("node1", node))

    async def story() -> Any:
        async with World(app, dsn) as world:
            run_id = await world.start("triage", alert)
            await world.drain()
            assert (await world.run(run_id)).status == "WAITING_APPROVAL"
            assert world.letters[0].action == {"restart": node}
            await world.decide(run_id, decision, voter="alice")
            if crash:
                world.crash_at(crash)
            await world.drain()
            world.advance(seconds=31)
            await world.drain()
            return await world.run(run_id)

    run = asyncio.run(story())

    assert run.status == status, run.failure_reason
    if status == "COMPLETED":
        assert run.result["title"] == "HighCPU"
        assert run.result.get("approved by") == (["alice"] if decision == "approve" else None)
    log = tmp_path / "cluster.log"
    acts = log.read_text().splitlines() if log.exists() else []
    assert [act.partition("  ")[0] for act in acts] == [f"{node} {what}" for what in done]


def test_the_example_does_not_ask_about_what_is_over(dsn: str, tmp_path: Path) -> None:
    app = load_app(str(ROOT / "examples/oncall.py"))
    alert = json.loads(text("examples/alert.json").replace('"firing"', '"resolved"'))

    async def story() -> Any:
        async with World(app, dsn) as world:
            run_id = await world.start("triage", alert)
            await world.drain()
            return await world.run(run_id)

    assert asyncio.run(story()).result == {"title": "HighCPU", "node": "node1", "firing": 0}


@pytest.mark.parametrize("page", ["README.md", "docs/start.md"])
def test_the_first_application_on_a_page_runs(page: str) -> None:
    program = next(block for block in blocks(page, "python") if "App()" in block)
    names: dict[str, Any] = {}

    exec(compile(program, page, "exec"), names)

    app: App = names["app"]
    result = asyncio.run(app.agents["triage"].handler(a_run({"alerts": [{}]})))
    assert list(result.values()) == [1]


def test_the_application_that_the_readme_lets_grow_runs(dsn: str, conn: Conn) -> None:
    conn.execute("create table public.restarts (run_id uuid, node text)")
    program = next(block for block in blocks("README.md", "python") if "run.step" in block)
    app = App()
    names: dict[str, Any] = {
        "app": app,
        "Run": Run,
        "diagnose": lambda alert: {"node": alert["node"]},
        "drain": lambda node: None,
        "put_back": app.compensation("put back")(lambda node: None),
    }
    exec(compile(program, "README.md", "exec"), names)

    async def story() -> Any:
        async with World(app, dsn) as world:
            run_id = await world.start("triage", {"node": "node1"})
            await world.drain()
            await world.decide(run_id, "approve")
            await world.drain()
            return await world.run(run_id)

    assert asyncio.run(story()).result == {"node": "node1"}
    assert one(conn, "select node from public.restarts") == "node1"


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_python_on_a_page_is_python(page: Path) -> None:
    for block in blocks(str(page), "python"):
        compile(block, page.name, "exec")


def test_toml_on_a_page_is_a_configuration(tmp_path: Path) -> None:
    keys = {"DISCORD_PUBLIC_KEY": "ab" * 32, "EVENTS_SECRET": "whsec_" + "A" * 32}
    keys["BOT_TOKEN"] = "123456:ABC-def"
    for page in PAGES:
        for block in blocks(str(page), "toml"):
            environ = dict.fromkeys(re.findall(r'"env:(\w+)"', block), "a") | keys
            (tmp_path / "semel.toml").write_text(block)
            settings = load(environ, tmp_path)
            told = (settings.sources, settings.notifiers, settings.ledger, settings.tools)
            assert any(told)


def test_every_place_where_a_process_may_be_killed_has_a_name_and_is_documented() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    assert set(re.findall(r'stop_here\("([^"]+)"\)', sources)) == set(STOPS)
    page = (ROOT / "docs/testing.md").read_text()
    assert [name for name in STOPS if f"`{name}`" not in page] == []
