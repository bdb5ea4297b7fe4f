"""What docs/clients.md shows is what happens."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fix_node import NodeClient, run_node
from flaky import Answer, Flaky, flaky, problem

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/clients.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture
def server() -> Iterator[Flaky]:
    with flaky() as here:
        yield here


def test_python(
    server: Flaky,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    server.acts = [
        Answer(),
        "drop",
        Answer(headers={"Idempotent-Replayed": "true"}),
        problem(422, "E-IDEMPOTENT-002"),
    ]
    names: dict[str, Any] = {"url": server.url}
    exec(compile("\n".join(blocks("python")), "clients.md", "exec"), names)
    assert capsys.readouterr().out.splitlines() == [
        "{} 2 True",
        "this key was used for something else",
    ]
    keys = [got.key for got in server.got]
    assert keys[0] != keys[1] == keys[2]
    assert keys[3] == '"used-before"'


def run_js(node: str, home: Path, folder: Path, block: str, url: str) -> str:
    """Run *block* as a user's module, beside its packages."""
    modules = folder / "node_modules"
    modules.mkdir()
    (modules / "@trpc").symlink_to(home / "node_modules/@trpc")
    (modules / "semel-client").symlink_to(ROOT / "clients/js")
    program = folder / "program.mjs"
    program.write_text(f"const url = {url!r};\n{block}")
    return run_node(node, home, str(program))


def test_trpc(node: str, node_client: NodeClient, server: Flaky, tmp_path: Path) -> None:
    server.acts = ["drop", *[Answer(body=b'[{"result":{"data":1}}]')] * 2]
    run_js(node, node_client("11"), tmp_path, blocks("js")[0], server.url)
    keys = [dict(got.headers)["idempotency-keys"] for got in server.got]
    assert keys[0] == keys[1] != keys[2]


def test_fetch(node: str, node_client: NodeClient, server: Flaky, tmp_path: Path) -> None:
    server.acts = ["drop"]
    said = run_js(node, node_client("11"), tmp_path, blocks("js")[1], f"{server.url}/pay")
    assert said.startswith("200 {")
    assert "tries: 2" in said
    assert server.got[0] == server.got[1]
