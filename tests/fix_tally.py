"""Adds up what the tests counted with record_property, and says it at the end of a soak."""

from collections import Counter
from itertools import chain

import pytest

from fuzzing import SECONDS
from modelling import SOAK


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each test that counted something, and one for each sum."""
    if not (SOAK or SECONDS):
        return
    sums: Counter[str] = Counter()
    each: Counter[tuple[str, str]] = Counter()
    for report in chain(*terminalreporter.stats.values()):
        for name, count in getattr(report, "user_properties", ()):
            if getattr(report, "when", "") == "call":
                where = report.nodeid.rpartition("::")[2].partition("[")
                of = where[2].rstrip("]")
                sums[name] += count
                each[name, where[0] if of.isdigit() else f"{where[0]} {of}".rstrip()] += count
    terminalreporter.section("soak")
    for (name, where), count in sorted(each.items()):
        terminalreporter.line(f"{count:>12,} {name:10} {where}")
    for name, count in sorted(sums.items()):
        terminalreporter.line(f"{count:>12,} {name:10} in all")
