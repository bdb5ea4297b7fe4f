"""
Settings: what semel.toml and SEMEL_* say, read once at start and refused whole when wrong.

`load` reads them; every refusal is a BadConfig that names the setting and what it may be.
Nothing here opens a connection, and no secret is ever written down or shown.
"""

from semel.config.alert_poll import ReconcileSettings
from semel.config.ledger import LedgerSettings
from semel.config.notifiers import ApprovalSettings, NotifierSettings
from semel.config.reading import load
from semel.config.secret import Secret
from semel.config.settings import (
    Channel,
    Retention,
    RunOn,
    Server,
    Settings,
    Source,
    Unit,
    WorkerSettings,
)
from semel.config.spool import SpoolSettings
from semel.config.tools import ToolServer
from semel.model import DigestKey

__all__ = [
    "ApprovalSettings",
    "Channel",
    "DigestKey",
    "LedgerSettings",
    "NotifierSettings",
    "ReconcileSettings",
    "Retention",
    "RunOn",
    "Secret",
    "Server",
    "Settings",
    "Source",
    "SpoolSettings",
    "ToolServer",
    "Unit",
    "WorkerSettings",
    "load",
]
