"""`semel bench`: how fast this database is for us."""

from dataclasses import replace

from semel.ops import place
from semel.ops.cli.command import Desk


def bench(desk: Desk) -> None:
    """Measure start, accept, drain and pick-up on this database, in a scratch project."""
    from semel.ops.bench import bench as measure  # noqa: PLC0415 - loads half of Semel

    settings = desk.settings
    with place.database(settings) as dsn, place.connection(settings) as conn:
        figures = measure(replace(settings, dsn=dsn), dsn, conn)
    width = max(len(figure.name) for figure in figures)
    desk.answer(
        {"figures": [{"name": f.name, "value": f.value, "unit": f.unit} for f in figures]},
        "\n".join(f"{f.name.ljust(width)}  {f.value:10,.1f} {f.unit}" for f in figures),
    )
