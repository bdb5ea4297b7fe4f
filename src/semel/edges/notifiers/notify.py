"""
Notify: the handler of `semel.notify`, the run that tells one person of one approval.

The run was made in the transaction that parked its parent, so no crash loses it and no duplicate
makes another. Each attempt keeps the hash of a fresh link under the run's own lease and then
sends it; the idempotency key is of the run, and the same at every attempt. An approval that is
decided meanwhile is told to nobody.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from uuid import UUID, uuid5

from semel.core.approvals import Link, approval_mint, approval_read
from semel.edges.notifiers.guard import Guard
from semel.edges.notifiers.line import Line
from semel.edges.notifiers.message import Message
from semel.edges.notifiers.notifier import NotifyRefused
from semel.edges.notifiers.slack import Slack
from semel.edges.notifiers.telegram import Telegram
from semel.edges.notifiers.webhook import Webhook
from semel.errors import BadConfig, LeaseLost, NotifyFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from semel.config import NotifierSettings, Settings
    from semel.core.call import Call
    from semel.edges.notifiers.notifier import Notifier
    from semel.model import Json

T = TypeVar("T")

AGENT = "semel.notify"
#: The approval's own time ends its run long before; a crash costs an attempt, too.
ATTEMPTS_MAX = 10_000
REACH_SECONDS_MAX = 5.0

_KEYS = UUID("6f2c8e0b-5a0d-5b53-9f5e-3c1a7d2e9b44")


class NotifyRun(Protocol):
    """What it needs of a run."""

    @property
    def id(self) -> UUID:
        """The notification's own."""

    @property
    def project(self) -> str:
        """Of the notification and of the approval."""

    @property
    def worker(self) -> str:
        """Who holds the run."""

    @property
    def fence(self) -> int:
        """Of this attempt."""

    @property
    def input(self) -> Any:
        """{"approval_id": ..., "recipient": ...}."""


class Database(Protocol):
    """What it needs of a connection; `semel.db.link.Link` is one."""

    async def run(self, call: Call[T]) -> T:
        """The answer of *call*."""


class Notify:
    """
    Tells people.

    Args:
        notifiers: By name, which is the recipient's.
        links: What a link begins with, without a slash at its end.
    """

    def __init__(
        self, notifiers: Mapping[str, tuple[str, Notifier]], database: Database, *, links: str
    ) -> None:
        self._notifiers = notifiers
        self._database = database
        self._links = links

    async def __call__(self, run: NotifyRun) -> dict[str, Json]:
        """
        What became of it: sent, or that there was nothing to send any more.

        Raises:
            NotifyFailed: not sent; a NotifyRefused where no other attempt can help.
            LeaseLost: the run is another's; nothing was sent.
        """
        approval_id, recipient = _asked(run.input)
        if recipient not in self._notifiers:
            raise NotifyRefused(
                f"no notifier is called {recipient[:80]!r}: add it to [notifiers] in semel.toml"
                " of the worker, or name another in notify="
            )
        kind, notifier = self._notifiers[recipient]
        approval = await self._database.run(approval_read(run.project, approval_id=approval_id))
        if approval is None or approval.state != "PENDING":
            return {"sent": False, "reason": approval.state.lower() if approval else "unknown"}
        link = Link.mint(run.project)
        outcome = await self._database.run(
            approval_mint(
                run.project,
                run.worker,
                run.id,
                run.fence,
                approval_id=approval_id,
                recipient=recipient,
                link=link,
            )
        )
        if outcome == "lost":
            raise LeaseLost("another attempt tells them")
        if outcome == "gone":
            return {"sent": False, "reason": "gone"}
        told = Message.of(
            approval, recipient=recipient, link=f"{self._links}/approve/{link.token}"
        )
        try:
            status = await notifier.send(told, uuid5(_KEYS, f"{run.project}/{run.id}"))
        except NotifyFailed as failed:
            failed.add_note(f"notifier {recipient}, kind {kind}")
            raise
        return {"sent": True, "via": kind, "status": status}


def _asked(told: Any) -> tuple[UUID, str]:
    try:
        return UUID(told["approval_id"]), str(told["recipient"])
    except (KeyError, TypeError, ValueError, AttributeError):
        raise NotifyRefused(
            'the input names no approval: {"approval_id": ..., "recipient": ...}; a run of'
            f" {AGENT} is made by run.approval only"
        ) from None


def notify_agent(
    settings: Settings, database: Database, environ: Mapping[str, str] = os.environ
) -> Callable[[NotifyRun], Awaitable[dict[str, Json]]]:
    """
    The async handler of AGENT, with the notifiers of *settings*; it looks their secrets up.

    Raises:
        BadConfig: a secret is not there, or what sends is not installed.
    """
    notifiers = {
        name: (each.kind, made(each, environ)) for name, each in settings.notifiers.items()
    }
    return Notify(notifiers, database, links=settings.links).__call__


def reach(settings: NotifierSettings, environ: Mapping[str, str] = os.environ) -> str:
    """
    Where the notifier leads: its origin, once the guard lets it. Nothing is sent.

    Raises:
        BadConfig: as `notify_agent`.
        NotifyFailed: its name has no address, or one that is not allowed.
    """
    url = made(settings, environ).url
    try:
        looked_up = Guard.of(settings).addresses(url.host, url.port)
        asyncio.run(asyncio.wait_for(looked_up, REACH_SECONDS_MAX))
    except (OSError, UnicodeError):
        raise NotifyFailed(f"{url.host} has no address that this machine can find") from None
    return url.origin


def made(settings: NotifierSettings, environ: Mapping[str, str]) -> Notifier:
    """
    The notifier that *settings* describe.

    Raises:
        BadConfig: as `notify_agent`.
    """
    try:
        from semel.edges.notifiers.post import Post  # noqa: PLC0415 - the notify extra brings it
    except ImportError as missing:
        raise BadConfig(
            f"[notifiers.{settings.name}] needs {missing.name}: pip install 'semel[notify]'"
        ) from None
    post = Post(Guard.of(settings))
    match settings.kind:
        case "webhook":
            return Webhook(settings, post, environ)
        case "telegram":
            return Telegram(settings, post, environ)
        case "slack":
            return Slack(settings, post, environ)
        case "line":
            return Line(settings, post, environ)
