"""`semel bench`: every figure, on the database one has, and nothing left behind."""

import pytest

from fix_cli import Semel
from fix_world import Conn
from semel.ops import bench

FIGURES = {
    "start": "runs/s",
    "start p50": "ms",
    "start p99": "ms",
    "accept": "runs/s",
    "accept p50": "ms",
    "accept p99": "ms",
    "drain": "runs/s",
    "pick-up p50": "ms",
    "pick-up p99": "ms",
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """As little work as shows every figure."""
    monkeypatch.setattr(bench, "SECONDS", 0.05)
    monkeypatch.setattr(bench, "DRAIN_RUNS", 20)
    monkeypatch.setattr(bench, "PACED_RUNS", 3)


def rows(conn: Conn) -> dict[str, int]:
    """Rows of every table that has rows of projects."""
    return {
        table: conn.execute(f"select count(*) from semel.{table}").fetchall()[0][0]
        for table in bench._tables(conn)
    }


def test_it_says_every_figure_and_leaves_nothing_behind(here: Semel, conn: Conn) -> None:
    before = rows(conn)

    said = here("bench")

    assert 0 == said.code, said.err
    assert list(FIGURES) == [line.partition("  ")[0] for line in said.out.splitlines()]
    assert before == rows(conn)


def test_its_json_has_each_figure_with_a_value_and_a_unit(here: Semel) -> None:
    said = here("--json", "bench")

    assert 0 == said.code, said.err
    figures = said.json["figures"]
    assert FIGURES == {figure["name"]: figure["unit"] for figure in figures}
    assert all(figure["value"] > 0 for figure in figures)


def test_it_measures_beside_other_projects_and_touches_none(here: Semel, conn: Conn) -> None:
    conn.execute("select semel.run_start('mine', 'noop', '{}')")

    here("bench", SEMEL_PROJECT="mine")

    kept = conn.execute("select project_id, agent, status from semel.runs").fetchall()
    assert [("mine", "noop", "PENDING")] == kept


def test_it_refuses_a_role_that_could_not_remove_what_it_makes(
    conn: Conn, dsn: str, here: Semel
) -> None:
    conn.execute("create role bench_reader login")
    conn.execute("grant usage on schema semel to bench_reader")
    conn.execute("grant select on semel.migration to bench_reader")
    try:
        said = here("bench", SEMEL_DSN=f"{dsn} user=bench_reader")
    finally:
        conn.execute("drop owned by bench_reader")
        conn.execute("drop role bench_reader")

    assert 1 == said.code
    assert "use the schema's owner" in said.err
