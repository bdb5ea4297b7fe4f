"""clients/js under node: its fetch, its tRPC links with the real clients, and its types."""

from pathlib import Path

import pytest

from fix_node import HERE, NodeClient, run_node

#: The first that needs the packages waits for npm.
pytestmark = pytest.mark.timeout(300)

LIBRARY = Path(__file__).parents[2] / "clients" / "js"
STRICT = ("--noEmit", "--strict", "--target", "es2022", "--lib", "es2022,dom,dom.iterable")
BUNDLED = ("--module", "esnext", "--moduleResolution", "bundler")


def test_the_fetch_of_the_javascript_client(node: str, tmp_path: Path) -> None:
    run_node(node, tmp_path, "--test", str(HERE / "fetch.test.mjs"))


@pytest.mark.parametrize("version", ["11", "10"])
def test_the_links_of_the_javascript_client(
    node: str, node_client: NodeClient, version: str
) -> None:
    run_node(node, node_client(version), "--test", str(HERE / "trpc.test.mjs"))


@pytest.mark.parametrize("version", ["11", "10"])
def test_the_types_fit_trpc(node: str, node_client: NodeClient, version: str) -> None:
    home = node_client(version)
    tsc = str(home / "node_modules/typescript/bin/tsc")
    # The declarations of tRPC name types of servers that are not installed.
    run_node(node, home, tsc, *STRICT, *BUNDLED, "--skipLibCheck", str(home / "types.ts"))


def test_the_types_are_whole_by_themselves(node: str, node_client: NodeClient) -> None:
    home = node_client("11")
    tsc = str(home / "node_modules/typescript/bin/tsc")
    run_node(node, home, tsc, *STRICT, *BUNDLED, str(HERE / "types.ts"))


def test_the_javascript_client_imports_nothing_but_itself() -> None:
    sources = [
        line.rpartition(" from ")[2]
        for file in LIBRARY.glob("*.js")
        for line in file.read_text().splitlines()
        if line.startswith(("import ", "export {"))
    ]
    assert len(sources) > 5
    assert all(source.startswith('"./') for source in sources), sources


def test_no_lock_file_names_a_registry() -> None:
    for version in ("10", "11"):
        assert "://" not in (HERE / version / "package-lock.json").read_text()
