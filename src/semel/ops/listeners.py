"""
Listeners: which process has a TCP port, to name it in a refusal.

Reads /proc on Linux; elsewhere, or for another account's process, it does not know.
"""

from __future__ import annotations

from pathlib import Path

_LISTENING = "0A"


def listener(port: int) -> str | None:
    """`name, pid N` of the process that listens on *port* of this machine; None if unknown."""
    sockets = _sockets(port)
    if not sockets:
        return None
    for process in Path("/proc").glob("[0-9]*"):
        try:
            held = {str(fd.readlink()) for fd in (process / "fd").iterdir()}
            if held & sockets:
                return f"{(process / 'comm').read_text().strip()}, pid {process.name}"
        except OSError:
            continue
    return None


def _sockets(port: int) -> set[str]:
    """The listening sockets of *port*, as /proc/PID/fd names them."""
    found = set()
    for name in ("tcp", "tcp6"):
        try:
            lines = Path("/proc/net", name).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            # local_address is ADDRESS:PORT in hex; st is the state; the tenth field the inode.
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(f"socket:[{fields[9]}]")
    return found
