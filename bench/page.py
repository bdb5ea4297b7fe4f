"""
Page: the figures as JSON, and as the page of the docs that people read.

Nothing is judged here but a goal beside its figure; what was not measured has no line.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from measure import Figures

INTRODUCTION = """\
Ours beside other job queues, in one run on one PostgreSQL, interleaved round by round. A machine's
speed swings more than some of these programs differ, so what counts are the ratios within a round:
their median, and their lower quartile as what we claim. Every handler call was recorded and every
job handled once; each run of ours ended COMPLETED after one attempt, with its fence.
`bench/README.md` says how each is measured."""

#: What ratios are to reach, by (figure, against): a lower quartile at least, or a median at most.
GOALS_AT_LEAST = {
    ("drain, 1 worker", "pgqueuer"): 2.0,
    ("drain, 1 worker", "pgboss"): 1.0,
    ("semel.start", "best Python peer"): 1.2,
    ("event_accept", "best Python peer"): 2.0,
    ("HTTP api", "route"): 2.0,
    ("HTTP alertmanager", "route"): 2.0,
    ("drain, snapshot held", "drain, no snapshot"): 0.6,
    ("drain, 1,000,000 finished", "drain, no snapshot"): 0.9,
}
GOALS_AT_MOST = {
    ("pick-up p50", "pgqueuer"): 1.5,
    ("pick-up p99", "pgqueuer"): 1.5,
}


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

    def goals(self) -> list[dict[str, Any]]:
        """Each goal whose two sides were measured: the ratios, and whether they reach it."""
        found = []
        for goals, at_least in ((GOALS_AT_LEAST, True), (GOALS_AT_MOST, False)):
            for (what, against), goal in goals.items():
                ratios = self._ratios(what, against)
                if ratios is None:
                    continue
                judged = ratios.lower if at_least else ratios.median
                found.append(
                    {
                        "what": what,
                        "against": against,
                        "goal": f"{'>=' if at_least else '<='} {goal}",
                        "median": ratios.median,
                        "lower_quartile": ratios.lower,
                        "reached": judged >= goal if at_least else judged <= goal,
                    }
                )
        return found

    def _ratios(self, what: str, against: str) -> Figures | None:
        unit = "ms" if what.startswith("pick-up") else "rate"
        ours = self.figures(what, "semel", unit)
        if against == "best Python peer":
            peers = [row for who, row in self.rows("enqueue", unit)]
            rounds = zip(*(row.values for row in peers), strict=False)
            theirs = Figures(tuple(max(values) for values in rounds)) if peers else None
        elif against.startswith("drain"):
            theirs = self.figures(against, "semel", unit)
        else:
            theirs = self.figures(what, against, unit)
        return ours.over(theirs) if ours and theirs else None

    def as_json(self) -> dict[str, Any]:
        return {
            "about": self.about,
            "goals": self.goals(),
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
    if goals := results.goals():
        parts += [
            "## Goals",
            _table(
                ("figure", "against", "goal", "median ratio", "lower quartile", "reached"),
                [
                    (
                        goal["what"],
                        goal["against"],
                        goal["goal"],
                        f"{goal['median']:.2f}",
                        f"{goal['lower_quartile']:.2f}",
                        "yes" if goal["reached"] else "no",
                    )
                    for goal in goals
                ],
            ),
        ]
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
        "A Python program's single enqueue, 8 callers, calls a second",
        ("semel.start", "event_accept", "enqueue"),
        "rate",
        ("p50_ms", "p99_ms", "wal_bytes"),
    ),
    (
        "Events over HTTP, 32 connections, requests a second",
        ("HTTP api", "HTTP alertmanager"),
        "rate",
        ("p50_ms", "p99_ms"),
    ),
    (
        "Pick-up by an idle worker, from commit to handler, ms",
        ("pick-up p50", "pick-up p99"),
        "ms",
        ("from_call_ms",),
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
                        _shown(figures.median),
                        _shown(figures.lower),
                        ratio,
                        *(_shown(other.median) if other else "" for other in others),
                    )
                )
        if rows:
            yield f"## {title}"
            yield _table(
                ("figure", "who", "median", "lower quartile", "ours over theirs", *beside), rows
            )


def _shown(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
