"""
Supervisor: the one parent of the postmaster, in a process of its own.

    starter --lock, plan--> supervisor --lock--> postmaster --> backends

Run as `python -m semel.db.embedded.supervisor HOME FD`, where FD is the supervisor's
lock, taken by the starter: no moment exists in which two supervisors could start. It
detaches, makes the data directory if there is none, starts the postmaster, tells the
users that it is ready, and waits for the first of:

    the last user left        fast shutdown, unless the server is kept
    SIGTERM (`stop`)          fast shutdown, users or not
    the postmaster was killed start it again, at most RESTARTS_MAX times a minute
    the postmaster ended      someone shut it down by hand: end too
    SIGKILL                   the kernel sends the postmaster SIGINT: fast shutdown

It trusts no user and no earlier supervisor to have tidied up.
"""

import fcntl
import os
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType

from . import cluster, sockets
from .account import named_account
from .errors import EmbeddedError
from .home import Home, Ready
from .locks import POLL_SECONDS

__all__ = ["Supervisor", "main"]

RESTARTS_MAX = 5  # In RESTART_SECONDS; a server killed more often has another trouble.
RESTART_SECONDS = 60.0
SILENCE_SECONDS_MAX = 120.0  # For an orphan's last checkpoint.
STOP_SECONDS_MAX = 60.0  # For a fast shutdown; then an immediate one, safe and slower to start.


class Supervisor:
    """One life of one server, possibly of several postmasters."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.plan = home.read_plan()
        self.account = named_account(self.plan.account)
        self.stopping = False  # For good; set by SIGTERM, or when the last user left.
        self.watching = False
        self.crashes: list[float] = []
        self._wake_r, self._wake_w = os.pipe()
        os.set_blocking(self._wake_r, False)
        os.set_blocking(self._wake_w, False)
        signal.set_wakeup_fd(self._wake_w, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._on_term)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_other)

    def run(self) -> None:
        """Serve until the end. Raises EmbeddedError when the server cannot run."""
        cluster.make(self.home, self.plan, self.account)
        socket_dir = sockets.make(self.home, self.account)
        self.line = sockets.listen(socket_dir)
        try:
            while not self.stopping and (returncode := self._serve(socket_dir)):
                self._judge(returncode)
        finally:
            sockets.remove(self.home, socket_dir)

    def _serve(self, socket_dir: Path) -> int:
        """Run one postmaster to its end; return how it ended, negative when killed."""
        deadline = time.monotonic() + SILENCE_SECONDS_MAX
        lock = cluster.silence(self.home, deadline=deadline)
        if self.stopping:
            lock.close()
            return 0
        child = cluster.spawn(self.home, self.plan, self.account, socket_dir, lock)
        ready = False
        asked_at = None
        while child.poll() is None:
            if not ready and cluster.is_ready(self.home, child.pid):
                ready = True
                self._tell(child, socket_dir)
            # Not before it has handlers; its file says so, unless HOME was removed since.
            listens = ready or cluster.speaks(self.home, child.pid)
            if self.stopping and asked_at is None and listens:
                self.home.ready.unlink(missing_ok=True)
                child.send_signal(signal.SIGINT)
                asked_at = time.monotonic()
            if asked_at is not None and time.monotonic() - asked_at > STOP_SECONDS_MAX:
                child.send_signal(signal.SIGQUIT)
            self._sleep(None if ready and not self.stopping else POLL_SECONDS)
        self.home.ready.unlink(missing_ok=True)
        return child.returncode

    def _tell(self, child: subprocess.Popen[bytes], socket_dir: Path) -> None:
        ready = Ready(
            postmaster_pid=child.pid, version=self.plan.version, socket_dir=str(socket_dir)
        )
        self.home.put_json(self.home.ready, ready)
        if not self.watching:
            self.watching = True
            threading.Thread(target=self._await_last_user, daemon=True).start()

    def _judge(self, returncode: int) -> None:
        """Allow another postmaster after a kill, within limits; refuse after an error."""
        if self.stopping:
            return
        if returncode > 0:
            raise EmbeddedError(f"postgres ended with {returncode}", log=self.home.log)
        now = time.monotonic()
        self.crashes = [at for at in self.crashes if now - at < RESTART_SECONDS] + [now]
        if len(self.crashes) > RESTARTS_MAX:
            raise EmbeddedError(
                f"postgres was killed {len(self.crashes)} times in {RESTART_SECONDS:g} s, last "
                f"by {signal.Signals(-returncode).name}; is memory short?",
                log=self.home.log,
            )
        say(f"postgres was killed by {signal.Signals(-returncode).name}; starting it again")

    def _await_last_user(self) -> None:
        """Take the users' lock alone: that is the moment after the last user left."""
        users = os.open(self.home.users, os.O_RDWR)
        fcntl.flock(users, fcntl.LOCK_EX)
        if self.home.keep.exists():
            os.close(users)
            return
        # Held until we end: a user who comes now waits for the next supervisor.
        self.stopping = True
        os.write(self._wake_w, b"\0")

    def _sleep(self, seconds: float | None) -> None:
        """Wait for a signal, the last user's leave, or *seconds*; answer who knocks."""
        readable, _, _ = select.select([self._wake_r, self.line.fileno()], [], [], seconds)
        if self.line.fileno() in readable:
            sockets.answer(self.line)
        with suppress(BlockingIOError):
            os.read(self._wake_r, 4096)

    def _on_term(self, _number: int, _frame: FrameType | None) -> None:
        self.stopping = True

    def _on_other(self, _number: int, _frame: FrameType | None) -> None:
        """Only wake the loop. Not SIG_IGN: the postmaster would inherit that."""


def say(text: str) -> None:
    """Write a line to the log, which is our standard error."""
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
    sys.stderr.write(f"{moment} UTC [{os.getpid()}] supervisor: {text}\n")
    sys.stderr.flush()


def main(path: str, lock_fd: str) -> int:
    """Supervise the server of the home *path*; hold *lock_fd* until the end."""
    os.umask(0o077)
    os.set_inheritable(int(lock_fd), False)
    os.write(int(lock_fd), str(os.getpid()).encode())
    home = Home(Path(path))
    try:
        Supervisor(home).run()
    except TimeoutError:
        problem = f"processes of an earlier server do not end; the data is {home.data}"
    except EmbeddedError as error:
        problem = error.problem
    except OSError as error:
        problem = str(error)
    else:
        return 0
    say(problem)
    home.put(home.error, problem)
    return 1


if __name__ == "__main__":
    # The starter waits for the first process, never for the second: no zombie stays with
    # a user, and the terminal cannot come back, for only a session's leader can get one.
    if os.fork():
        os._exit(0)
    sys.exit(main(*sys.argv[1:]))
