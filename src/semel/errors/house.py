"""What is wrong with the database, the settings or the program itself."""

from __future__ import annotations

from semel.errors.base import SemelError


class DatabaseUnreachable(SemelError):
    """The database does not answer. Nothing was kept; send it again."""

    code = "E-DB-001"
    sqlstate = "SMD01"
    http_status = 503
    exit_code = 3
    retryable = True
    title = "database out of reach"
    remedy = "Check SEMEL_DSN and that PostgreSQL is up: `semel doctor`."


class SchemaMismatch(SemelError):
    """The schema in the database is not the one this program needs."""

    code = "E-DB-002"
    sqlstate = "SMD02"
    http_status = 503
    title = "schema mismatch"
    remedy = "Run `semel migrate`, or a program of the schema's version."


class EmbeddedError(SemelError):
    """The embedded PostgreSQL cannot be found, made or started."""

    code = "E-DB-003"
    sqlstate = "SMD03"
    http_status = 503
    exit_code = 3
    title = "embedded PostgreSQL unavailable"
    remedy = "Read the log that the message names, or point SEMEL_DSN at a server of your own."


class BadConfig(SemelError):
    """A setting is unknown, misspelt or impossible."""

    code = "E-CONFIG-001"
    sqlstate = "SMG01"
    http_status = 500  # a request can meet it; it is not the client's fault
    exit_code = 2
    title = "impossible setting"
    remedy = "The message names the setting and what it may be."


class OurFault(SemelError):
    """A fault of Semel's own. Nothing was kept; the log has the traceback."""

    code = "E-INTERNAL-001"
    sqlstate = "SMX01"
    http_status = 500
    retryable = True
    title = "internal fault"
    remedy = "Send it again; if it comes back, report it with the log's traceback."
