"""The one error of this package: what, which one, what now, and where the log is."""

from pathlib import Path

from semel import errors

__all__ = ["EmbeddedError"]

TAIL_LINES_MAX = 20
TAIL_BYTES_MAX = 8_192


class EmbeddedError(errors.EmbeddedError):
    """
    E-DB-003 with its log: the embedded server cannot be used. The text says why, and what to do.

    Attributes:
        problem: The text without the log.
        log: The server's log file. It may not exist yet.
    """

    def __init__(self, problem: str, *, log: Path, show_log: bool = False) -> None:
        super().__init__(f"{problem} [log: {log}]{_tail(log) if show_log else ''}")
        self.problem = problem
        self.log = log


def _tail(log: Path) -> str:
    """Return the last lines of *log*, indented for a message; empty when there is none."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES_MAX))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "".join(f"\n  | {line}" for line in text.splitlines()[-TAIL_LINES_MAX:])
