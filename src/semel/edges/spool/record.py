"""
Record: what is kept of one arrival, as bytes, and what comes of it on a connection.

It is what the channel read at receipt - verified, routed, with the settings its source had then -
and when that was. So a drain needs no secret, and no change of the configuration changes what was
received. Bodies are kept once, however many events speak of them.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

from semel.config import Source
from semel.config.routing import Route
from semel.core import inbox
from semel.db.execute import arun
from semel.edges.channel import Notification, reason_of
from semel.edges.folding import Folding
from semel.model import Alert, Offer

if TYPE_CHECKING:
    import psycopg

    from semel.model import Accepted

#: Events of one statement.
EVENTS_MAX = 256
_HEAD = struct.Struct(">dI")
_PLAIN = ("project", "source", "channel", "headers")

#: What is accepted together: events, or a notification as its source is for one agent.
Part: TypeAlias = "list[Offer] | tuple[Source, Notification]"
#: Stands for routes of a source that has no agent of its own; a drain routes nothing.
_ROUTED = (Route(agent="routed"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One arrival at a source: when it came, and what was read of it."""

    at: float  # unix seconds
    project: str
    source: str
    channel: str
    parts: list[Part]
    body: bytes
    headers: dict[str, str]  # without secrets

    @property
    def events(self) -> int:
        """How many verdicts there will be, as far as is known."""
        return sum(len(part) if isinstance(part, list) else 1 for part in self.parts)

    def quarantined(self, reason: str) -> Record:
        """The same kept raw, where the database could not keep what was read."""
        offer = Offer(
            source=self.source,
            channel=self.channel,
            body=self.body,
            headers=self.headers,
            verdict="quarantined",
            reason=reason_of(reason),
        )
        return replace(self, parts=[[offer]])

    async def on(
        self, conn: psycopg.AsyncConnection[Any], *, memory: timedelta
    ) -> tuple[list[Accepted], set[str]]:
        """
        Accept it in the transaction that *conn* is in, as of the moment it came.

        Answers besides which agents got a run.
        """
        now = datetime.fromtimestamp(self.at, UTC)
        accepted: list[Accepted] = []
        agents: set[str] = set()
        for part in self.parts:
            if isinstance(part, list):
                for n in range(0, len(part), EVENTS_MAX):
                    offers = part[n : n + EVENTS_MAX]
                    call = inbox.event_accept(
                        self.project, offers, memory=memory, patient=False, now=now
                    )
                    some = await arun(conn, call)
                    agents |= {
                        offer.agent
                        for offer, one in zip(offers, some, strict=True)
                        if offer.agent and one.verdict == "new"
                    }
                    accepted += some
            else:
                source, notification = part
                folding = Folding(
                    source=source,
                    notification=notification,
                    body=self.body,
                    headers=self.headers,
                    now=now,
                )
                some = await folding.on(conn)
                if source.agent and any(one.verdict == "new" and one.run_id for one in some):
                    agents.add(source.agent)
                accepted += some
        return accepted, agents


def named_events(offers: list[Offer]) -> list[Offer]:
    """
    *offers*, each event of them with an id.

    One that its sender did not name may be on its way to the database when it is spooled; both
    ways must lead to one event.
    """
    return [
        replace(offer, id=f"semel:{uuid4()}", reason=offer.reason or "no identity was given")
        if offer.id is None and offer.verdict is None
        else offer
        for offer in offers
    ]


def pack(record: Record) -> bytes:
    """*record* as bytes: the moment first, then text, then bodies."""
    bodies: dict[bytes, int] = {record.body: 0}
    told = {
        **{name: getattr(record, name) for name in _PLAIN},
        "parts": [
            [_offer(offer, bodies) for offer in part]
            if isinstance(part, list)
            else {"source": _source(part[0]), "notification": asdict(part[1])}
            for part in record.parts
        ],
        "bodies": [len(body) for body in bodies],
    }
    text = json.dumps(told, separators=(",", ":")).encode()
    return _HEAD.pack(record.at, len(text)) + text + b"".join(bodies)


def received_at(packed: bytes) -> float:
    """When what is *packed* came, in unix seconds."""
    return float(_HEAD.unpack_from(packed)[0])


def unpack(packed: bytes) -> Record:
    """
    The record that was packed.

    Raises:
        ValueError: it was written by a version that keeps other things.
    """
    try:
        at, size = _HEAD.unpack_from(packed)
        begin = _HEAD.size + size
        told = json.loads(packed[_HEAD.size : begin])
        bodies = []
        for length in told["bodies"]:
            bodies.append(packed[begin : begin + length])
            begin += length
        return Record(
            at=at,
            **{name: told[name] for name in _PLAIN},
            parts=[_part(part, bodies) for part in told["parts"]],
            body=bodies[0],
        )
    except (KeyError, TypeError, AttributeError, IndexError, struct.error) as bad:
        raise ValueError(f"no record of this version: {type(bad).__name__}") from bad


def _part(told: Any, bodies: list[bytes]) -> Part:
    if isinstance(told, list):
        return [_offered(offer, bodies) for offer in told]
    alerts = [Alert(**alert) for alert in told["notification"].pop("alerts")]
    plain = _spanned(told["source"])
    source = Source(**plain, route=() if "agent" in plain else _ROUTED)
    return source, Notification(**told["notification"], alerts=alerts)


def _source(source: Source) -> dict[str, Any]:
    """What a drain may need of *source*: its plain settings, none of its secrets."""
    plain = {
        each.name: value
        for each in fields(source)
        if isinstance(value := getattr(source, each.name), str | int | timedelta)
    }
    return _spans(plain)


def _offer(offer: Offer, bodies: dict[bytes, int]) -> dict[str, Any]:
    told = {each.name: getattr(offer, each.name) for each in fields(offer)}
    return _spans(told | {"body": bodies.setdefault(offer.body, len(bodies))})


def _offered(told: dict[str, Any], bodies: list[bytes]) -> Offer:
    told = _spanned(told)
    return Offer(**(told | {"body": bodies[told["body"]]}))


def _spans(told: dict[str, Any]) -> dict[str, Any]:
    """*told* as JSON: its durations apart, as microseconds."""
    spans = {
        name: value // timedelta(microseconds=1)
        for name, value in told.items()
        if isinstance(value, timedelta)
    }
    rest = {name: value for name, value in told.items() if name not in spans}
    return {"plain": rest, "spans": spans}


def _spanned(told: dict[str, Any]) -> dict[str, Any]:
    spans = {name: timedelta(microseconds=value) for name, value in told["spans"].items()}
    return {**told["plain"], **spans}
