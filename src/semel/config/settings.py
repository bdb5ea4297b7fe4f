"""
Settings as values: each says its unit, its limits, and refuses what is impossible.

They are frozen, and checked whether they were read from a file or made by a test.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from semel.config.limits import check_limits, check_networks
from semel.config.notifiers import ApprovalSettings
from semel.config.routing import check_routing
from semel.config.secret import described
from semel.config.spool import SpoolSettings
from semel.config.url import Url
from semel.config.values import matches, plain, shown, within
from semel.errors import BadConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semel.config.alert_poll import ReconcileSettings
    from semel.config.hmac import HmacSettings
    from semel.config.ledger import LedgerSettings
    from semel.config.limits import Rate
    from semel.config.notifiers import NotifierSettings
    from semel.config.poll import PollSettings
    from semel.config.routing import Condition, Route
    from semel.config.secret import Secret
    from semel.config.tools import ToolServer

Channel = Literal[
    "alertmanager",
    "api",
    "cloudevents",
    "discord",
    "gitea",
    "github",
    "hmac",
    "line",
    "slack",
    "standard",
    "stripe",
    "telegram",
    "telegram-poll",
]
Authenticate = Literal["secret", "none"]
RunOn = Literal["firing", "firing+resolved"]
Unit = Literal["notification", "alert"]

PROJECT = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
SOURCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
AGENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")

MIB = 1024 * 1024
#: Stands for "follows another setting" until __post_init__ has worked it out.
FOLLOWS = cast("timedelta", None)
#: A beat is a transaction; a heartbeat shorter than this is a load and no better a sign of life.
HEARTBEAT_MIN = timedelta(milliseconds=100)
LEASE_MIN = timedelta(seconds=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One configured bot, hook or client of a channel."""

    name: str
    channel: Channel
    agent: str | None = None  # whose runs its events start; None: its routes say, or none
    project: str = "default"
    secrets: tuple[
        Secret, ...
    ] = ()  # any of them; two while one is rotated; none: loopback, or authenticate = "none"
    authenticate: Authenticate = "secret"  # none: whoever reaches the server may post
    priority: int = 5  # 0 (last) to 9 (first)
    resolved_grace: timedelta = timedelta(seconds=120)  # alertmanager: the fold's grace
    run_on: RunOn = "firing"  # alertmanager
    unit: Unit = "notification"  # alertmanager: one event each, or one for each changed alert
    reminder: timedelta | None = (
        None  # alertmanager: an event after so long; None: counted only
    )
    stale_after: timedelta = timedelta(
        days=30
    )  # alertmanager: unheard of, an episode is closed
    reconcile: ReconcileSettings | None = None  # alertmanager: where its API is asked
    require_key: bool = False  # api: refuse a request without an Idempotency-Key
    window: timedelta = timedelta(minutes=5)  # slack, standard, stripe: age of a signature
    content_window: timedelta | None = None  # gitea, github, hmac; None: as long as an id
    hmac: HmacSettings | None = None  # hmac: how it signs, and where its id is
    poll: PollSettings | None = None  # telegram-poll: where it asks, and how
    events: tuple[str, ...] = ()  # patterns of the event types it takes; none: all
    when: tuple[Condition, ...] = ()  # and what must stand in an event
    route: tuple[Route, ...] = ()  # the first that takes an event says its agent
    allow: tuple[str, ...] = ()  # networks it may be reached from; none: all
    rate: Rate | None = None  # requests that are accepted, in each process
    silent_after: timedelta | None = None  # without an event for so long, something is wrong
    spool: bool = False  # keep on disk, and answer 202, what comes while the database is away

    def __post_init__(self) -> None:
        at = f"[sources.{self.name}]"
        matches(at, "name", self.name, SOURCE, "1 to 64 of A-Z, a-z, 0-9, _, . and -")
        matches(at, "project", self.project, PROJECT, "1 to 64 of a-z, 0-9, _ and -")
        for agent in (self.agent, *(route.agent for route in self.route)):
            if agent is not None:
                matches(at, "agent", agent, AGENT, "1 to 128 of A-Z, a-z, 0-9, _, . and -")
        check_routing(at, self)
        check_limits(at, self)
        within(f"{at} priority", self.priority, 0, 9)
        within(f"{at} resolved_grace", self.resolved_grace, timedelta(0), timedelta(days=1))
        if self.reminder is not None:
            within(f"{at} reminder", self.reminder, timedelta(minutes=1), timedelta(days=366))
        within(f"{at} stale_after", self.stale_after, timedelta(hours=1), timedelta(days=3660))
        within(f"{at} window", self.window, timedelta(seconds=1), timedelta(days=1))
        if self.content_window is not None:
            most = timedelta(days=36_500)
            within(f"{at} content_window", self.content_window, timedelta(0), most)
        if (self.channel == "hmac") != (self.hmac is not None):
            raise BadConfig(
                f"{at} hmac: a source of channel hmac says how it signs, as in"
                ' hmac = { header = "X-Signature" }, and no other does'
            )
        if self.channel == "telegram-poll" and self.authenticate == "none":
            raise BadConfig(
                f'{at} authenticate = "none": it asks with the bot\'s token; write'
                ' secrets = ["env:NAME"]'
            )
        if self.authenticate == "none" and self.secrets:
            raise BadConfig(
                f'{at} has secrets and authenticate = "none": leave out one, or nobody can say'
                " whether the secrets are asked for"
            )

    @property
    def is_routed(self) -> bool:
        """Whether an event must be looked at to know its agent."""
        return bool(self.route or self.events or self.when)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """How a worker holds its runs. heartbeat, dead_after, pause follow the lease if unset."""

    slots: int = 32  # runs at a time, 1 to 10000
    lease: timedelta = timedelta(minutes=5)  # the limit of trust, 2 s to 1 h
    heartbeat: timedelta = FOLLOWS  # min(10 s, lease/6); at least 100 ms
    dead_after: timedelta = FOLLOWS  # 3 heartbeats: a silent worker loses its runs
    pause: timedelta = FOLLOWS  # 2 heartbeats: a worker that cannot beat stops starting work
    poll: timedelta = timedelta(seconds=1)  # longest look away from the queue, 0.05 s to 60 s
    drain: timedelta = timedelta(seconds=2)  # how long a stop waits for handlers
    hard_stop: timedelta = timedelta(seconds=30)  # a handler told to stop must have; 1 s to 1 h

    def __post_init__(self) -> None:
        within("[worker] slots", self.slots, 1, 10_000)
        within("[worker] lease", self.lease, LEASE_MIN, timedelta(hours=1))
        within("[worker] poll", self.poll, timedelta(seconds=0.05), timedelta(seconds=60))
        within("[worker] hard_stop", self.hard_stop, timedelta(seconds=1), timedelta(hours=1))
        within("[worker] drain", self.drain, timedelta(0), timedelta(hours=1))
        if self.heartbeat is FOLLOWS:
            self._follow("heartbeat", min(timedelta(seconds=10), self.lease / 6))
        beat = self.heartbeat
        within("[worker] heartbeat", beat, HEARTBEAT_MIN, timedelta(hours=1))
        if self.dead_after is FOLLOWS:
            self._follow("dead_after", beat * 3)
        if self.pause is FOLLOWS:
            self._follow("pause", beat * 2)
        if not beat * 3 <= self.dead_after <= self.lease:
            raise BadConfig(
                f"[worker] heartbeat {shown(beat)}, dead_after {shown(self.dead_after)},"
                f" lease {shown(self.lease)}: dead_after must be at least 3 heartbeats and at"
                " most the lease; leave heartbeat and dead_after out and they follow the lease"
            )
        if not beat * 1.5 <= self.pause < self.dead_after:
            raise BadConfig(
                f"[worker] pause {shown(self.pause)} must be at least 1.5 heartbeats of"
                f" {shown(beat)}, or nothing is ever claimed, and shorter than dead_after"
                f" {shown(self.dead_after)}: a worker must stop before its runs are taken"
            )

    def _follow(self, name: str, value: timedelta) -> None:
        object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Where the ingress listens, and its limits."""

    host: str = "127.0.0.1"
    port: int = 8750  # 0: any free one
    body_bytes_max: int = MIB
    header_bytes_max: int = 32 * 1024  # all header lines of a request together
    pool: int = 10  # connections to the database
    trusted_proxies: tuple[str, ...] = ()  # networks whose X-Forwarded-For is believed

    def __post_init__(self) -> None:
        if not self.host.strip():
            raise BadConfig("[server] host is empty: leave it out, or write 127.0.0.1")
        within("[server] port", self.port, 0, 65_535)
        within("[server] body_bytes_max", self.body_bytes_max, 1024, 64 * MIB)
        within("[server] header_bytes_max", self.header_bytes_max, 1024, MIB)
        within("[server] pool", self.pool, 1, 1000)
        check_networks("[server] trusted_proxies", self.trusted_proxies)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long things are kept."""

    dedupe: timedelta = timedelta(days=7)  # an id, from its last sighting
    deliveries: timedelta = timedelta(days=7)
    runs: timedelta = timedelta(days=30)  # never before the run's dedupe row
    results: timedelta = timedelta(days=30)  # ledger: then a tombstone
    operations: timedelta | None = None  # ledger identity; None: never deleted
    journal: timedelta = timedelta(days=7)

    def __post_init__(self) -> None:
        for each in fields(self):
            kept = getattr(self, each.name)
            if kept is not None:
                within(
                    f"[retention] {each.name}",
                    kept,
                    timedelta(minutes=1),
                    timedelta(days=36_500),
                )
        if self.operations is not None and self.operations < timedelta(hours=24):
            raise BadConfig(
                f"[retention] operations {shown(self.operations)}: at least 24h, since deleting"
                ' an operation permits a second execution; "never" keeps them'
            )
        if self.runs < self.dedupe:
            raise BadConfig(
                f"[retention] runs {shown(self.runs)} is shorter than dedupe"
                f" {shown(self.dedupe)}: a duplicate must still find its run"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything a process of ours is told from outside."""

    dsn: str | None = field(default=None, repr=False)  # None: the embedded server in home
    home: Path = Path(".semel")
    project: str = "default"  # of schedules and of the command line
    pooler: bool = False  # behind a transaction pooler: no prepared statements
    testing: bool = False  # test headers and stop points are honoured
    sources: dict[tuple[str, str], Source] = field(default_factory=dict)  # by (project, name)
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    server: Server = field(default_factory=Server)
    retention: Retention = field(default_factory=Retention)
    approvals: ApprovalSettings = field(default_factory=ApprovalSettings)
    spool: SpoolSettings = field(default_factory=SpoolSettings)
    notifiers: Mapping[str, NotifierSettings] = field(default_factory=dict)  # by name
    ledger: Mapping[str, LedgerSettings] = field(default_factory=dict)  # by project
    tools: Mapping[str, ToolServer] = field(default_factory=dict)  # by name
    public_url: str | None = None  # where people reach the server; None: on this machine
    file: Path | None = None  # that was read; None: there is none

    def __post_init__(self) -> None:
        if self.dsn is not None and not self.dsn.strip():
            raise BadConfig(
                "semel.toml dsn is empty: leave it out for the embedded server, or write"
                " postgresql://user@host/name"
            )
        if self.dsn is not None and any("\ud800" <= char <= "\udfff" for char in self.dsn):
            raise BadConfig("semel.toml dsn is not UTF-8: mend what it was read from")
        matches("semel.toml", "project", self.project, PROJECT, "1 to 64 of a-z, 0-9, _ and -")
        self.approvals.check(self.notifiers)
        self.spool.check(source.name for source in self.sources.values() if source.spool)
        if self.public_url is not None:
            Url.read("semel.toml public_url", self.public_url, http=True)
            if "?" in self.public_url:
                raise BadConfig(
                    "semel.toml public_url has a ?: write only what comes before /approve/"
                )
        if self.server.is_loopback:
            return
        if self.testing:
            raise BadConfig(
                f"SEMEL_TESTING with [server] host {self.server.host!r}: whoever reaches it"
                " could move the clock; unset it, or listen on 127.0.0.1"
            )
        for source in self.sources.values():
            if not source.secrets and source.authenticate != "none":
                raise BadConfig(
                    f"[sources.{source.name}] has no secrets while [server] host is"
                    f" {self.server.host!r}: anyone could post to it; add"
                    ' secrets = ["env:NAME"], or listen on 127.0.0.1'
                )

    @property
    def links(self) -> str:
        """What a link to us begins with; it ends in no slash."""
        return (self.public_url or f"http://127.0.0.1:{self.server.port}").rstrip("/")

    def shown(self) -> dict[str, Any]:
        """The settings in force as JSON, for `semel config`: no secret, no password."""
        return {
            "file": str(self.file) if self.file else None,
            "dsn": self.dsn and described(self.dsn),
            "home": str(self.home),
            "project": self.project,
            "pooler": self.pooler,
            "public_url": self.links,
            "testing": self.testing,
            "sources": {
                source.name: {
                    key: value for key, value in plain(source).items() if value != "never"
                }
                for source in self.sources.values()
            },
            "worker": plain(self.worker),
            "server": plain(self.server),
            "retention": plain(self.retention),
            "approvals": self.approvals.shown(),
            "spool": {key: told for key, told in plain(self.spool).items() if told != ""},
            "notifiers": {name: each.shown() for name, each in self.notifiers.items()},
            "ledger": {project: each.shown() for project, each in self.ledger.items()},
            "tools": {name: each.shown() for name, each in self.tools.items()},
        }
