"""Only the database's clock decides: what runs and waits is not asked of the machine's."""

import ast
from pathlib import Path

import pytest

import semel

SOURCE = Path(semel.__file__).parent
#: Calls that read the wall clock. Monotonic ones measure how long we waited, and decide nothing.
WALL = {"now", "utcnow", "today", "time", "time_ns"}
FILES = sorted(
    path for room in ("core", "db", "runtime") for path in (SOURCE / room).glob("*.py")
)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_nothing_that_decides_reads_the_clock_of_its_machine(path: Path) -> None:
    read = [
        ast.unparse(node)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in WALL
        and ast.unparse(node.func.value) in {"time", "datetime", "date", "datetime.datetime"}
    ]
    assert [] == read
