"""
Replay: a kept delivery, read again under today's configuration, and offered again on purpose.

A delivery that has an identity is offered under one that names the replay, so nothing takes it
for a duplicate. One that had none - it was quarantined, or ignored - gets its true identity now:
when its sender repeats it, that is a duplicate. Alerts that were quarantined are folded as of
the moment they came; others are a run on purpose and leave the fold as it is.

The secret was verified when it came and is not asked for again. A dry run is the same
transaction, rolled back, so it answers what would happen and not what we think would.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import psycopg

from semel.core import deliveries, inbox, reads
from semel.db.execute import run
from semel.edges import start
from semel.edges.acceptor import in_order
from semel.edges.channel import Notification, Reply, Request
from semel.edges.channels import READERS
from semel.edges.committer import ours
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
) -> tuple[Delivery, list[Replayed]]:
    """
    Offer the delivery *told*, or the one that made the event *told*, again.

    Args:
        conn: In autocommit; one transaction is made.
        settings: Today's; a source's secrets need not be there.

    Raises:
        NoSuchEvent: no delivery of this project has or made it.
        NotReplayable: its body is purged, its source is of another channel now, or reads it as
            one to be ignored.
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
    reading = _read(delivery, settings.sources.get(name), first, dry_run=dry_run)
    try:
        with conn.transaction(force_rollback=dry_run):
            accepted = (
                _fold(conn, delivery, settings.sources[name], reading)
                if isinstance(reading, Notification)
                else _offer(conn, delivery, _mine(delivery, reading), settings.retention.dedupe)
            )
            return delivery, [_replayed(conn, delivery, one, first) for one in accepted]
    except psycopg.Error as error:
        raise ours(error) from error


def _read(
    delivery: Delivery, source: Source | None, first: reads.Work | None, *, dry_run: bool
) -> list[Offer] | Notification:
    """The bytes of *delivery* as today's configuration reads them."""
    if delivery.body is None:
        raise NotReplayable(
            f"the body of delivery {delivery.delivery_id} is purged: [retention] deliveries"
        )
    headers = {name: value for name, value in delivery.headers.items() if value != "***"}
    if start.PATH_HEADER in headers:
        return [
            start.read(
                delivery.project, delivery.source, delivery.body, key=None, headers=headers
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
        return [_of_alerts(delivery, source, reading, first)] if delivery.known else reading
    return _usable(reading, dry_run=dry_run)


def _usable(offers: list[Offer], *, dry_run: bool) -> list[Offer]:
    """*offers*, which must be events unless it is only asked what they would become."""
    if not offers:
        raise NotReplayable("today's configuration finds no event in it")
    for offer in offers if not dry_run else ():
        if offer.verdict == "quarantined":
            raise Quarantined(f"it is still unusable: {offer.reason}")
        if offer.verdict == "ignored":
            raise NotReplayable(f"today's configuration ignores it: {offer.reason}")
    return offers


def _mine(delivery: Delivery, offers: Sequence[Offer]) -> list[Offer]:
    """
    Those of *offers* that the delivery is about, with its body and headers.

    One request may have held several events, each with a delivery of its own: of one that has
    an identity, only that one.
    """
    mine = [
        replace(
            offer,
            body=delivery.body or b"",
            headers=_headers(delivery),
            # A replay of what was accepted has a run of its own, whatever its agent does.
            correlation=None if delivery.known else offer.correlation,
            content=None if delivery.known else offer.content,
        )
        for offer in offers
        if not delivery.known or len(offers) == 1 or offer.id == delivery.provider_event_id
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
    return Offer(
        source=source.name,
        channel=source.channel,
        agent=source.agent,
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
    for alerts in filter(None, in_order(reading.alerts)):
        accepted += run(
            conn,
            inbox.alert_accept(
                source.project,
                source.name,
                source.agent,
                reading.envelope,
                alerts,
                body=delivery.body or b"",
                headers=_headers(delivery),
                grace=source.resolved_grace,
                run_on=source.run_on,
                unit=source.unit,
                priority=source.priority,
                now=delivery.received_at,
            ),
        )
    news = [one for one in accepted if one.verdict == "new"]
    if reading.unusable and not news:
        raise Quarantined(f"it is still unusable: {reading.unusable}")
    run(conn, deliveries.delivery_settle(delivery, (news or accepted)[0]))
    return accepted


def _offer(
    conn: psycopg.Connection[Any], delivery: Delivery, offers: list[Offer], memory: timedelta
) -> Sequence[Accepted]:
    if delivery.known and offers[0].verdict is None:
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
) -> Replayed:
    work = run(conn, reads.work_of(delivery.project, accepted.run_id))
    same = None if first is None or work is None else first.what == work.what
    return Replayed(
        accepted=accepted,
        started=work is not None
        and work.event_id == accepted.event_id
        and accepted.verdict == "new",
        agent=work.agent if work else None,
        input=work.input if work else None,
        differs=None if same is None else not same,
    )
