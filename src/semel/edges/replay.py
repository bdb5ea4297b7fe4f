"""
Replay: a kept delivery, read again under today's configuration, and offered again.

One that was quarantined or ignored has no identity yet and gets its true one now: when its sender
repeats it, that is a duplicate. One that has an identity is offered under it, so it is what its
sender's repetition would be, a duplicate as a rule; by force it is offered under one that
names the replay, so nothing takes it for a duplicate and it makes a run on purpose.

Alerts that were quarantined or ignored are folded as of the moment they came. Those that were
folded are only judged: what came since has changed the state that they were judged by. A run on
purpose leaves the fold as it is.

The secret was verified when it came and is not asked for again. A dry run is the same
transaction, rolled back, so it answers what would happen and not what we think would.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import psycopg

from semel.core import deliveries, inbox, reads
from semel.db.execute import run
from semel.edges import routing, start
from semel.edges.channel import Notification, Reply, Request
from semel.edges.channels import READERS
from semel.edges.committer import ours
from semel.edges.folding import in_order
from semel.errors import NoSuchEvent, NotReplayable, Quarantined, UnknownSource
from semel.model import Offer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta
    from uuid import UUID

    from semel.config import Settings, Source
    from semel.core.deliveries import Delivery
    from semel.model import Accepted, Json

#: Kept with the headers of a replay's delivery: the delivery that was replayed.
REPLAY_HEADER = ":replay"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What one event of a replay became, or would become."""

    accepted: Accepted
    started: bool  # a run, or would have; else what follows is of the run it speaks of
    agent: str | None
    input: Json
    differs: bool | None  # agent or input, from the first run; None: that is not known


def replay(
    conn: psycopg.Connection[Any],
    settings: Settings,
    project: str,
    told: UUID,
    *,
    dry_run: bool = False,
    force: bool = False,
) -> tuple[Delivery, list[Replayed]]:
    """
    Offer the delivery *told*, or the one that made the event *told*, again.

    Args:
        conn: In autocommit; one transaction is made.
        settings: Today's; a source's secrets need not be there.
        dry_run: Roll it back.
        force: Make a run on purpose of what has made an event already, whatever routes say now.

    Raises:
        NoSuchEvent: no delivery of this project has or made it.
        NotReplayable: its body is purged, its source is of another channel now, or reads it as
            one to be ignored; or, not by force, it is of alerts that were folded.
        UnknownSource: its source is configured no longer.
        Quarantined: it is still unusable.
    """
    delivery = run(conn, deliveries.delivery_read(project, told))
    if delivery is None:
        raise NoSuchEvent(
            f"no delivery of project {project} has the id {told} or made that event: it was"
            " started by a program, or its retention has ended"
        )
    name = (project, delivery.source)
    first = run(conn, reads.work_of(project, delivery.run_id))
    by_force = force and (delivery.known or delivery.event_id is not None)
    reading = _read(
        delivery, settings.sources.get(name), first, dry_run=dry_run, by_force=by_force
    )
    if isinstance(reading, Notification) and delivery.known and not dry_run:
        raise NotReplayable(
            "its alerts were folded, and others came since; --dry-run judges it and changes"
            " nothing, --force makes a run on purpose"
        )
    try:
        with conn.transaction(force_rollback=dry_run):
            if isinstance(reading, Notification):
                accepted = _fold(conn, delivery, settings.sources[name], reading)
                return delivery, [_replayed(conn, delivery, one, first) for one in accepted]
            mine = _mine(delivery, reading, by_force=by_force)
            accepted = _offer(
                conn, delivery, mine, settings.retention.dedupe, by_force=by_force
            )
            return delivery, [
                _replayed(conn, delivery, one, first, today=offer if delivery.known else None)
                for one, offer in zip(accepted, mine, strict=True)
            ]
    except psycopg.Error as error:
        raise ours(error) from error


def _read(
    delivery: Delivery,
    source: Source | None,
    first: reads.Work | None,
    *,
    dry_run: bool,
    by_force: bool,
) -> list[Offer] | Notification:
    """The bytes of *delivery* as today's configuration reads them."""
    if delivery.body is None:
        raise NotReplayable(
            f"the body of delivery {delivery.delivery_id} is purged: [retention] deliveries"
        )
    headers = {name: value for name, value in delivery.headers.items() if value != "***"}
    if start.PATH_HEADER in headers:
        key = None if by_force else delivery.provider_event_id
        return [
            start.read(
                delivery.project, delivery.source, delivery.body, key=key, headers=headers
            )
        ]
    if source is None:
        raise UnknownSource(
            f"today's configuration has no source {delivery.source!r} in project"
            f" {delivery.project!r}"
        )
    if source.channel != delivery.channel:
        raise NotReplayable(
            f"source {source.name} is of channel {source.channel} now; this came to one of"
            f" {delivery.channel}"
        )
    reading = READERS[source.channel](
        Request(
            method="POST",
            headers=list(headers.items()),
            body=delivery.body,
            local=True,
            admitted=True,
        ),
        source,
    )
    if isinstance(reading, Reply):
        reading = list(reading.offers)
    if isinstance(reading, Notification):
        return [_of_alerts(delivery, source, reading, first)] if by_force else reading
    if by_force:
        return [_forced(offer, source, first) for offer in _found(reading)]
    return _usable(routing.routed(_found(reading), source), delivery, dry_run=dry_run)


def _found(offers: list[Offer]) -> list[Offer]:
    if not offers:
        raise NotReplayable("today's configuration finds no event in it")
    return offers


def _forced(offer: Offer, source: Source, first: reads.Work | None) -> Offer:
    """*offer* for the agent that routes say now; where they say none, for that of its first run."""
    [now] = routing.routed([offer], source)
    if now.agent is not None or now.verdict == "quarantined":
        return now
    agent = first.agent if first is not None else source.agent
    if agent is None or offer.verdict is not None:
        raise NotReplayable(f"nothing says which agent it is for: {now.reason}")
    return replace(offer, agent=agent)


def _usable(offers: list[Offer], delivery: Delivery, *, dry_run: bool) -> list[Offer]:
    """*offers*, which must be events unless it is only asked what they would become."""
    asked = [offer for offer in offers if _is_of(offer, offers, delivery)]
    for offer in asked if not dry_run else ():
        if offer.verdict == "quarantined":
            raise Quarantined(f"it is still unusable: {offer.reason}")
        if offer.verdict == "ignored":
            raise NotReplayable(f"today's configuration ignores it: {offer.reason}")
    return offers


def _is_of(offer: Offer, offers: Sequence[Offer], delivery: Delivery) -> bool:
    """Whether the *delivery* is about this one of *offers*."""
    is_named = delivery.known or delivery.provider_event_id is not None
    return not is_named or len(offers) == 1 or offer.id == delivery.provider_event_id


def _mine(delivery: Delivery, offers: Sequence[Offer], *, by_force: bool) -> list[Offer]:
    """
    Those of *offers* that the delivery is about, with its body and headers.

    One request may have held several events, each with a delivery of its own: of one that has
    an identity, only that one.
    """
    mine = [
        replace(
            offer,
            id=delivery.provider_event_id if delivery.known else offer.id,
            body=delivery.body or b"",
            headers=_headers(delivery),
            # A run on purpose is one of its own, whatever its agent does.
            correlation=None if by_force else offer.correlation,
            content=None if by_force else offer.content,
        )
        for offer in offers
        if _is_of(offer, offers, delivery)
    ]
    if not mine:
        raise NotReplayable(
            f"today's configuration finds no event {delivery.provider_event_id} in it"
        )
    return mine


def _headers(delivery: Delivery) -> dict[str, str]:
    return {**delivery.headers, REPLAY_HEADER: str(delivery.delivery_id)}


def _of_alerts(
    delivery: Delivery, source: Source, reading: Notification, first: reads.Work | None
) -> Offer:
    """A run on purpose: about the alerts of the first run, or all of them where it is gone."""
    wanted = _fingerprints(delivery, first)
    alerts = [
        alert for alert in reading.alerts if not wanted or alert.fingerprint in wanted
    ] or reading.alerts
    is_firing = any(alert.status == "firing" for alert in alerts)
    chosen = (
        routing.choose(source, alert.status, {**reading.envelope, **alert.alert}).agent
        for alert in alerts
    )
    agent = next(filter(None, chosen), first.agent if first is not None else source.agent)
    if agent is None:
        raise NotReplayable("no route says which agent its alerts are for")
    return Offer(
        source=source.name,
        channel=source.channel,
        agent=agent,
        input={
            **reading.envelope,
            "status": "firing" if is_firing else "resolved",
            "alerts": [alert.alert for alert in alerts],
        },
        priority=source.priority,
    )


def _fingerprints(delivery: Delivery, first: reads.Work | None) -> set[str]:
    """The alerts that the first run was about; none when it is gone or another event's."""
    if (
        first is None
        or first.event_id != delivery.event_id
        or not isinstance(first.input, dict)
    ):
        return set()
    alerts = first.input.get("alerts")
    if not isinstance(alerts, list):
        return set()
    return {str(alert.get("fingerprint")) for alert in alerts if isinstance(alert, dict)}


def _fold(
    conn: psycopg.Connection[Any], delivery: Delivery, source: Source, reading: Notification
) -> Sequence[Accepted]:
    """Fold alerts that never were; as of the moment they came, since others came after."""
    accepted: list[Accepted] = []
    parts, unrouted = routing.parted(reading, source)
    if not parts:
        raise NotReplayable(f"today's configuration ignores it: {unrouted}")
    for own, alerts in [
        (own, alerts) for own, part in parts for alerts in in_order(part.alerts) if alerts
    ]:
        accepted += run(
            conn,
            inbox.alert_accept(
                source.project,
                source.name,
                own.agent,
                reading.envelope,
                alerts,
                body=delivery.body or b"",
                headers=_headers(delivery),
                grace=source.resolved_grace,
                run_on=source.run_on,
                unit=source.unit,
                priority=source.priority,
                reminder=source.reminder,
                now=delivery.received_at,
            ),
        )
    news = [one for one in accepted if one.verdict == "new"]
    if reading.unusable and not news:
        raise Quarantined(f"it is still unusable: {reading.unusable}")
    run(conn, deliveries.delivery_settle(delivery, (news or accepted)[0]))
    return accepted


def _offer(
    conn: psycopg.Connection[Any],
    delivery: Delivery,
    offers: list[Offer],
    memory: timedelta,
    *,
    by_force: bool,
) -> Sequence[Accepted]:
    if by_force and offers[0].verdict is None:
        one = run(conn, deliveries.event_replay(delivery, offers[0], memory=memory))
        if one is None:
            raise NotReplayable(f"the body of delivery {delivery.delivery_id} was just purged")
        return [one]
    accepted = run(conn, inbox.event_accept(delivery.project, offers, memory=memory))
    if accepted[0].event_id is not None:
        run(conn, deliveries.delivery_settle(delivery, accepted[0]))
    return accepted


def _replayed(
    conn: psycopg.Connection[Any],
    delivery: Delivery,
    accepted: Accepted,
    first: reads.Work | None,
    *,
    today: Offer | None = None,
) -> Replayed:
    """What *accepted* became; of what made no run, what *today* would ask an agent to do."""
    work = run(conn, reads.work_of(delivery.project, accepted.run_id))
    started = (
        work is not None and work.event_id == accepted.event_id and accepted.verdict == "new"
    )
    if not started and today is not None and today.agent is not None:
        work = reads.Work(today.agent, today.input, None)
    same = None if first is None or work is None else first.what == work.what
    return Replayed(
        accepted=accepted,
        started=started,
        agent=work.agent if work else None,
        input=work.input if work else None,
        differs=None if same is None else not same,
    )
