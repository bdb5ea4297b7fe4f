"""What the doctor says of a spool. It looks from outside, takes no lock and changes nothing."""

from __future__ import annotations

import os
import shutil
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from semel.core import spools
from semel.db.execute import run
from semel.edges.spool.seal import Keys
from semel.errors import BadConfig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any, Literal

    import psycopg

    from semel.config import Settings
    from semel.config.spool import SpoolSettings

#: Ingresses tell of their spools every ten minutes.
SEEN_WITHIN = timedelta(minutes=30)
#: Gone with the machine, or with the container.
EPHEMERAL = frozenset({"tmpfs", "ramfs", "overlay", "overlayfs", "aufs"})
REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p"})
NAMED_MAX = 3


class Finding(NamedTuple):
    """One line for the doctor."""

    status: Literal["ok", "note", "FAIL"]
    detail: str
    remedy: str = ""


def findings(settings: Settings) -> Iterator[Finding]:
    """The spool of *settings*: its keys, its disk, what waits in it and what is damaged."""
    spool = settings.spool
    if not spool.is_there:
        return
    try:
        Keys(spool.keys_read())
    except BadConfig as bad:
        yield Finding("note", f"{bad}", "the ingress needs it; this process may do without")
    yield from _disk(spool)
    yield from _content(spool.folder)


def rivals(conn: psycopg.Connection[Any]) -> Iterator[Finding]:
    """Sources that several ingresses spool, each on its own disk."""
    for project, source, places in run(conn, spools.rival_spools(SEEN_WITHIN)):
        named = ", ".join(places[:NAMED_MAX]) + (", …" if len(places) > NAMED_MAX else "")
        yield Finding(
            "note",
            f"{len(places)} ingresses spool {project}/{source}, each on its own disk: {named}",
            "what they spool at the same time comes in in no order among them; where order"
            " counts, send a source to one of them",
        )


def _disk(spool: SpoolSettings) -> Iterator[Finding]:
    place = _there(spool.folder)
    if not os.access(place, os.W_OK | os.X_OK):
        yield Finding(
            "FAIL",
            f"{place} cannot be written by this account",
            "give it to the account of the ingress, or name another [spool] path",
        )
        return
    kind = filesystem(place)
    if kind in EPHEMERAL:
        yield Finding(
            "FAIL",
            f"{spool.folder} is on {kind}, which goes with its machine or container",
            "mount a volume that stays, and name a folder on it: [spool] path",
        )
    elif kind in REMOTE:
        yield Finding(
            "note",
            f"{spool.folder} is on {kind}: it is away when the network is",
            "name a folder on a local disk: [spool] path",
        )
    free = shutil.disk_usage(place).free
    if free < spool.bytes_max:
        yield Finding(
            "note",
            f"{free} bytes are free there, and the spool may take {spool.bytes_max}",
            "make room, or lower [spool] bytes_max",
        )
    if kind not in EPHEMERAL:
        yield Finding("ok", f"{spool.folder} on {kind}, at most {spool.bytes_max} bytes")


def _content(folder: Path) -> Iterator[Finding]:
    files = list((folder / "sources").glob("*/*/*.spool"))
    sizes = [size for size in map(_size, files) if size]
    if sizes:
        names = sorted({"/".join(each.parts[-3:-1]) for each in files})
        named = ", ".join(names[:NAMED_MAX]) + (", …" if len(names) > NAMED_MAX else "")
        yield Finding(
            "note",
            f"{sum(sizes)} bytes wait to be drained: {named}",
            "they go by themselves while an ingress runs and the database is there; its log says"
            " spool.held if not",
        )
    damaged = sorted((folder / "damaged").glob("*.damaged"))
    if damaged:
        yield Finding(
            "FAIL",
            f"{len(damaged)} pieces could not be read, the first is {damaged[0]}",
            "have their senders deliver again what came then, check the disk, and remove them",
        )


def _there(folder: Path) -> Path:
    """*folder*, or the nearest above it that there is."""
    return next((each for each in (folder, *folder.parents) if each.is_dir()), folder)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:  # drained in this moment
        return 0


def filesystem(place: Path, mounts: str = "/proc/self/mounts") -> str:
    """The kind of file system that *place* is on; `unknown` where nobody says."""
    where = os.path.realpath(place)
    found, longest = "unknown", -1
    try:
        with open(mounts, encoding="utf-8", errors="surrogateescape") as lines:  # noqa: PTH123 - a device of the kernel
            for line in lines:
                _, at, kind, *_ = line.split(" ")
                at = at.replace("\\040", " ").rstrip("/")
                inside = where == at or where.startswith(f"{at}/")
                if inside and len(at) >= longest:
                    found, longest = kind, len(at)
    except (OSError, ValueError):
        return "unknown"
    return found
