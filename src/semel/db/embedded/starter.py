"""
Starter: find the supervisor of a home, or start one, or end it.

All that asks "who supervises?" and acts on the answer happens inside the door, so a file
that an earlier supervisor left is never taken for the word of the present one. Whoever
gets the supervisor's lock there starts a supervisor and hands it that very lock.
"""

import os
import signal
import site
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from . import cluster, locks, processes, sockets
from .account import choose_account
from .binaries import find_binaries
from .errors import EmbeddedError
from .home import Home, Plan, Ready
from .locks import Lock
from .staging import reach

__all__ = ["await_ready", "end"]

MODULE = "semel.db.embedded.supervisor"
STARTS_MAX = 10  # By one call; a supervisor that was killed meanwhile is replaced.


def await_ready(home: Home, settings: Mapping[str, str], *, deadline: float) -> Ready:
    """
    Return what the supervisor tells of a server that answers; start one as needed.

    Raises:
        EmbeddedError: The server cannot run, or supervisors keep vanishing.
        TimeoutError: *deadline* passed.
    """
    starts = 0
    watched = False  # An error that was there when this call began is history.
    while True:
        ready = started = None
        with locks.held(home.door, deadline=deadline):
            if lock := locks.try_take(home.supervisor):
                try:
                    if watched and (why := home.read_error()):
                        raise EmbeddedError(why, log=home.log, show_log=True)
                    if starts == STARTS_MAX:
                        raise EmbeddedError(
                            f"supervisor vanished {starts} times",
                            log=home.log,
                            show_log=True,
                        )
                    started = _launch(home, settings, lock)
                    starts += 1
                    watched = True
                finally:
                    lock.close()
            else:
                ready = home.read_ready()
                watched |= home.read_error() is None
        if started:
            _await_detached(home, started, deadline)
        if ready and sockets.knock(ready):
            return ready
        if time.monotonic() >= deadline:
            raise TimeoutError(home.path)
        time.sleep(locks.POLL_SECONDS)


def end(home: Home, *, deadline: float) -> bool:
    """
    End supervisor and server; return True when either was there.

    Raises:
        TimeoutError: Some of it was left at *deadline*.
    """
    asked = 0
    while True:
        with locks.held(home.door, deadline=deadline):
            lock = locks.try_take(home.supervisor)
            pid = 0 if lock else _supervisor_pid(home)
        if lock:
            try:
                return _end_orphans(home, deadline) or asked > 0
            finally:
                lock.close()
        if asked and pid != asked:  # Ours has ended; this is one of a user who came after.
            return True
        if pid and not asked:
            asked = pid
            processes.send({pid} & processes.find(f"{MODULE} {home.path}"), signal.SIGTERM)
        if time.monotonic() >= deadline:
            raise TimeoutError(home.path)
        time.sleep(locks.POLL_SECONDS)


def _end_orphans(home: Home, deadline: float) -> bool:
    """End a server whose supervisor was killed. We hold the supervisor's lock."""
    lock = locks.try_take(home.server)
    found = lock is None
    (lock or cluster.silence(home, deadline=deadline)).close()
    return found


def _launch(home: Home, settings: Mapping[str, str], lock: Lock) -> subprocess.Popen[bytes]:
    """Start a supervisor that owns *lock*. What can be refused is refused here, in words."""
    account = choose_account(home, os.environ)
    binaries = find_binaries(home, os.environ)
    cluster.check_version(home, binaries)
    binaries = reach(home, binaries, account)
    home.ready.unlink(missing_ok=True)
    home.error.unlink(missing_ok=True)
    os.ftruncate(lock.fd, 0)
    home.put_json(
        home.plan,
        Plan(
            bin=str(binaries.bin),
            version=binaries.version,
            account=account.name,
            settings=dict(settings),
        ),
    )
    home.rotate_log()
    log = os.open(home.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", MODULE, str(home.path), str(lock.fd)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env={**os.environ, "PYTHONPATH": _python_path()},
            pass_fds=(lock.fd,),
            start_new_session=True,
        )
    finally:
        os.close(log)


def _await_detached(home: Home, started: subprocess.Popen[bytes], deadline: float) -> None:
    """Reap the supervisor's first process; the second one is nobody's child."""
    try:
        returncode = started.wait(max(0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise TimeoutError(home.path) from None
    if returncode:
        raise EmbeddedError(f"supervisor ended with {returncode}", log=home.log, show_log=True)


def _supervisor_pid(home: Home) -> int:
    """Return the number its supervisor wrote into its lock; 0 when it has not yet."""
    return int(home.supervisor.read_text() or 0)


def _python_path() -> str:
    """Our PYTHONPATH, true in another folder too, and leading to this package."""
    parts = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    known = [str(Path(part).absolute()) for part in parts if part]
    source = str(Path(__file__).resolve().parents[3])
    if source not in (*known, *site.getsitepackages(), site.getusersitepackages()):
        known.append(source)
    return os.pathsep.join(known)
