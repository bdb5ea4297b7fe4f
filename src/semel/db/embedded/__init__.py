"""
Embedded: a PostgreSQL of our own, for a person without one.

    from semel.db.embedded import use

    with use(Path(".semel")) as server:
        psycopg.connect(server.dsn)

Several processes that use one home share one server. The first starts it, the last one
to leave ends it, and it does not matter how a process leaves: users are counted by locks
of the kernel, not by lists. Who lives, and what happens when it is killed:

    user          holds users.lock, shared     the others go on; after the last: shutdown
    supervisor    holds supervisor.lock        the kernel asks the postmaster to shut down;
                                               the next user starts both again
    postmaster    inherits server.lock         the supervisor starts it again; users reconnect
    initdb        works under another name     the next supervisor makes a new one

`use` believes only answers: of the supervisor, then of the postmaster, both after the
call. A server found so may still be killed a moment later; then call `use` again.

Everything is in HOME: the data, the log (named in every error), the socket. The socket's
folder moves to the temporary place when its name is too long. Root's server runs as an
account that exists already, and root's binaries are copied when that account cannot reach
them. Never here: an account made, a mode changed on a folder that is not ours, a port
opened, fsync off by default, a process number trusted.

The server has no TLS, no ICU, and trusts whoever may enter the socket's folder: its
owner, and root.
"""

from .errors import EmbeddedError
from .guard import guarded
from .server import Server, Status, keep, psql, status, stop, use

__all__ = [
    "EmbeddedError",
    "Server",
    "Status",
    "guarded",
    "keep",
    "psql",
    "status",
    "stop",
    "use",
]
