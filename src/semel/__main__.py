"""The command `semel`, also as `python -m semel`."""

from __future__ import annotations

import sys

#: What the command line needs beyond the library, by the module that is missed first.
_EXTRAS = {
    "typer": "cli",
    "rich": "cli",
    "psycopg_pool": "server",
    "starlette": "server",
    "uvicorn": "server",
}


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        from semel.ops.cli import cli  # noqa: PLC0415 - what is missing is told, not shown as a traceback
    except ImportError as missing:
        name = (missing.name or "").partition(".")[0]
        if name in _EXTRAS:
            sys.exit(_lacking(f"the command line needs {name}", _EXTRAS[name]))
        if "pq wrapper" in str(missing):
            sys.exit(_lacking("psycopg finds no libpq", "binary"))
        raise
    sys.exit(cli(sys.argv[1:]))


def _lacking(what: str, extra: str) -> int:
    print(f"{what}: pip install 'semel[{extra}]'", file=sys.stderr)  # noqa: T201 - nothing else can speak yet
    return 2


if __name__ == "__main__":
    main()
