"""
Page: the figures as JSON, and as the page of the docs that people read.

Nothing is judged here; `goals` does. What was not measured has no line but among the goals.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from goals import HEAD, shown, verdicts
from measure import Figures

INTRODUCTION = """\
Ours beside other job queues, in one run on one PostgreSQL, interleaved round by round. A machine's
speed swings more than some of these programs differ, so what counts are the ratios within a round:
their median, and their lower quartile as what we claim. Every handler call was recorded and every
job handled once; each run of ours ended COMPLETED after one attempt, with its fence.
`bench/README.md` says how each is measured."""

GOALS_SAID = """\
A goal of at least so much is judged by the lower quartile, one of at most so much by the median.
"""


class Results:
    """What was measured: figures by (what, who, unit), one value for each round."""

    def __init__(self, about: Mapping[str, Any]) -> None:
        self.about = dict(about)
        self._values: dict[tuple[str, str, str], list[float]] = {}
        self.notes: list[dict[str, Any]] = []

    def add(self, what: str, who: str, **units: float) -> None:
        """One round's values of *what* for *who*, by unit."""
        for unit, value in units.items():
            self._values.setdefault((what, who, unit), []).append(value)

    def figures(self, what: str, who: str, unit: str) -> Figures | None:
        values = self._values.get((what, who, unit))
        return Figures(tuple(values)) if values else None

    def rows(self, what: str, unit: str) -> list[tuple[str, Figures]]:
        """(who, figures) in the order in which they were first measured."""
        return [
            (who, Figures(tuple(values)))
            for (one, who, of), values in self._values.items()
            if one == what and of == unit
        ]

    def as_json(self) -> dict[str, Any]:
        return {
            "about": self.about,
            "goals": [verdict.as_json() for verdict in verdicts(self)],
            "figures": [
                {"what": what, "who": who, "unit": unit, **Figures(tuple(values)).as_json()}
                for (what, who, unit), values in self._values.items()
            ],
            "notes": self.notes,
        }


def write(results: Results, *, data: Path, page: Path) -> None:
    """Both files, whole or not at all."""
    for path, content in (
        (data, json.dumps(results.as_json(), indent=1) + "\n"),
        (page, markdown(results)),
    ):
        draft = path.with_suffix(".draft")
        draft.write_text(content)
        draft.replace(path)


def markdown(results: Results) -> str:
    """The page."""
    about = results.about
    parts = [
        "# Benchmarks",
        INTRODUCTION,
        f"Made by `{about['command']}` on {about['date']}: {about['machine']}. {about['load']}",
        _table(
            ("setting", "value"), [(name, value) for name, value in about["settings"].items()]
        ),
        _table(("version", ""), [(name, value) for name, value in about["versions"].items()]),
    ]
    parts += ["## Goals", GOALS_SAID, _table(HEAD, [v.cells for v in verdicts(results)])]
    parts += list(_sections(results))
    for note in results.notes:
        parts += [f"## {note['title']}", note["text"]]
        if note.get("rows"):
            parts.append(_table(note["head"], note["rows"]))
    return "\n\n".join(parts) + "\n"


#: (title, figures, unit, the columns beside it)
_SECTIONS = (
    (
        "Drain of a backlog, jobs a second",
        (
            "drain, 1 worker",
            "drain, 2 workers",
            "drain, no snapshot",
            "drain, snapshot held",
            "drain, 1,000,000 finished",
        ),
        "rate",
        ("cpu_us", "server_cpu_us", "wal_bytes", "commits", "wal_syncs", "rss_mb"),
    ),
    (
        "One run from its event to its end: events accepted through group commit, 8 callers",
        ("accept, claim and finish",),
        "wal_bytes",
        ("accept_wal_bytes", "accept_server_cpu_us", "accept_cpu_us", "accepts_per_second"),
    ),
    (
        "A Python program's single enqueue, 8 callers, calls a second",
        ("semel.start", "event_accept", "enqueue"),
        "rate",
        ("p50_ms", "p99_ms", "wal_bytes"),
    ),
    (
        "A batch of 100,000 started by one program, runs a second",
        ("a batch of 100,000",),
        "rate",
        ("cpu_us", "wal_bytes", "rss_mb"),
    ),
    (
        "Events over HTTP, 32 connections, requests a second",
        ("HTTP api", "HTTP alertmanager", "HTTP github", "HTTP github again"),
        "rate",
        ("p50_ms", "p99_ms"),
    ),
    (
        "Pick-up by an idle worker, from commit to handler, ms",
        ("pick-up p50", "pick-up p99"),
        "ms",
        ("from_call_ms",),
    ),
    (
        "A mutation of one update and one insert under a key, 8 callers, mutations a second",
        (
            "a mutation under a key",
            "a mutation that may fail",
            "a replay",
            "a mutation through once",
            "a replay through once",
        ),
        "rate",
        ("wal_bytes",),
    ),
    (
        "Idle: statements a second of a server, a worker and upkeep",
        ("idle, 1 project", "idle, 100 projects"),
        "statements",
        ("purge",),
    ),
)


def _sections(results: Results) -> Iterable[str]:
    for title, whats, unit, beside in _SECTIONS:
        rows = []
        for what in whats:
            for who, figures in results.rows(what, unit):
                ours = results.figures(what, "semel", unit)
                ratio = f"{ours.over(figures).median:.2f}" if ours and who != "semel" else ""
                others = [results.figures(what, who, other) for other in beside]
                rows.append(
                    (
                        what,
                        who,
                        shown(figures.median),
                        shown(figures.lower),
                        ratio,
                        *(shown(other.median) if other else "" for other in others),
                    )
                )
        if rows:
            yield f"## {title}"
            yield _table(
                ("figure", "who", "median", "lower quartile", "ours over theirs", *beside), rows
            )


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
