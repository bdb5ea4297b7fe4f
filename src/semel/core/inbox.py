"""
Inbox: offer events, and learn which are new.

One function here per function in sql/functions/{inbox,alerts,notifications}.sql: same name, same
arguments. The SQL decides; this module gives the answer a type. Nothing here opens a
connection or reads a clock.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from semel.core.call import Call, nothing
from semel.core.text import dump, dump_bytes
from semel.model import Accepted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from semel.model import Alert, Json, Notice, Offer

#: How long an id is remembered after its last sighting.
MEMORY = timedelta(days=7)
#: How long after a resolution the same firing is taken for a late copy of it.
GRACE = timedelta(seconds=120)


def event_accept(
    project: str,
    offers: Sequence[Offer],
    *,
    memory: timedelta = MEMORY,
    patient: bool = True,
    now: datetime | None = None,
) -> Call[list[Accepted]]:
    """
    Accept events of one project in one transaction: delivery, dedupe row, run.

    Args:
        offers: At most 256; answered in their order.
        memory: Counted from the last sighting of an id.
        patient: Wait for a twin that is not committed yet; else for half a second at most.
        now: For sightings; the database's clock if None. A run's times are always real.

    Source: sql/functions/inbox.sql, event_accept.
    """
    bodies = list(dict.fromkeys(offer.body for offer in offers))
    index = {body: n for n, body in enumerate(bodies)}
    events = [offered(offer) for offer in offers]
    for event, offer in zip(events, offers, strict=True):
        event["body"] = index[offer.body]
    args = (project, dump(events), dump_bytes(bodies), memory, now)
    if patient:
        return Call(
            "select verdict, event_id, run_id, reason"
            " from semel.event_accept(%s, %s, %s::text::bytea[], %s, %s)",
            args,
            _accepted,
        )
    return Call(
        "select verdict, event_id, run_id, reason"
        " from semel.event_gather(%s, %s, %s::text::bytea[], %s, %s)",
        args,
        _accepted,
    )


#: Members of an event that are as its offer has them, where it has one.
_AS_TOLD = ("verdict", "reason", "unique", "correlation", "concurrency_key", "content")


def offered(offer: Offer) -> dict[str, Any]:
    """*offer* as event_accept reads one, without its body. What is as usual is left out."""
    event: dict[str, Any] = {
        "source": offer.source,
        "channel": offer.channel,
        "id": offer.id,
        "agent": offer.agent,
        "input": offer.input,
        "priority": offer.priority,
    }
    if offer.compare:
        event["compare"] = True
    if offer.headers:
        event["headers"] = offer.headers
    for name in _AS_TOLD:
        if (told := getattr(offer, name)) is not None:
            event[name] = told
    if offer.delay is not None:
        event["delay"] = f"{offer.delay.total_seconds()} seconds"
    if offer.deadline is not None:
        event["deadline"] = f"{offer.deadline.total_seconds()} seconds"
    if offer.window is not None:
        event["window"] = f"{offer.window.total_seconds()} seconds"
    return event


def alert_accept(
    project: str,
    source: str,
    agent: str | None,
    envelope: Mapping[str, Json],
    alerts: Sequence[Alert],
    *,
    body: bytes,
    headers: Mapping[str, str],
    grace: timedelta = GRACE,
    run_on: str = "firing",
    unit: str = "notification",
    priority: int = 5,
    reminder: timedelta | None = None,
    patient: bool = True,
    now: datetime | None = None,
) -> Call[list[Accepted]]:
    """
    Fold an Alertmanager notification into what is known of its alerts; only changes are new.

    Args:
        envelope: The notification without its alerts; the run's input is this with `alerts`
            narrowed to those that changed. Its `groupKey` is the correlation key: where the
            agent joins, what is new is a signal to the group's live run.
        run_on: `firing`, or `firing+resolved` where a resolution is work of its own.
        unit: `notification` for one event, `alert` for one per changed alert.
        reminder: So long after its last event, an open episode without a live run has one more
            when it is told of again; None: never.
        patient: Wait for a notification of the same alerts that is not committed yet; else for
            half a second at most.
        now: For the grace and for sightings; the database's clock if None.

    Source: sql/functions/alerts.sql, alert_accept.
    """
    args = (
        project,
        source,
        agent,
        dump(dict(envelope)),
        dump([_folded(alert) for alert in alerts]),
        body,
        dump(dict(headers)),
        grace,
        run_on,
        unit,
        priority,
        now,
        reminder,
    )
    if patient:
        return Call(
            "select verdict, event_id, run_id, reason"
            " from semel.alert_accept(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            args,
            _accepted,
        )
    return Call(
        "select verdict, event_id, run_id, reason"
        " from semel.alert_gather(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        args,
        _accepted,
    )


def notification_fold(
    project: str,
    notices: Sequence[Notice],
    *,
    patient: bool = True,
    now: datetime | None = None,
) -> Call[list[list[Accepted]]]:
    """
    Fold notifications of one project in one transaction, each as `alert_accept` would alone.

    Args:
        notices: At most 256; answered in their order. No alert of a source stands in two.
        patient: Wait for a notification of the same alerts that is not committed yet; else for
            half a second at most.
        now: For the grace and for sightings; the database's clock if None.

    Source: sql/functions/notifications.sql, notification_fold.
    """
    told = [
        {
            "source": notice.source,
            "agent": notice.agent,
            "envelope": notice.envelope,
            "alerts": [_folded(alert) for alert in notice.alerts],
            "headers": notice.headers,
            "grace": f"{notice.grace.total_seconds()} seconds",
            "run_on": notice.run_on,
            "unit": notice.unit,
            "priority": notice.priority,
            "reminder": None
            if notice.reminder is None
            else f"{notice.reminder.total_seconds()} seconds",
        }
        for notice in notices
    ]

    def read(rows: Sequence[Any]) -> list[list[Accepted]]:
        accepted: list[list[Accepted]] = [[] for _ in notices]
        for n, *row in rows:
            accepted[n - 1] += _accepted([row])
        return accepted

    args = (project, dump(told), dump_bytes([notice.body for notice in notices]), now)
    if patient:
        return Call(
            "select n, verdict, event_id, run_id, reason"
            " from semel.notification_fold(%s, %s, %s::text::bytea[], %s)",
            args,
            read,
        )
    return Call(
        "select n, verdict, event_id, run_id, reason"
        " from semel.notification_gather(%s, %s, %s::text::bytea[], %s)",
        args,
        read,
    )


def source_register(project: str, sources: Sequence[tuple[str, str, str | None]]) -> Call[None]:
    """
    Announce sources, as (name, channel type, agent), for the view `sources`.

    Source: sql/functions/inbox.sql, source_register.
    """
    return Call(
        "select semel.source_register(%s, %s::text[], %s::text[], %s::text[])",
        (
            project,
            [name for name, _, _ in sources],
            [channel for _, channel, _ in sources],
            [agent for _, _, agent in sources],
        ),
        nothing,
    )


def _folded(alert: Alert) -> dict[str, Any]:
    return {
        "fingerprint": alert.fingerprint,
        "status": alert.status,
        "starts_ns": alert.starts_ns,
        "ends_ns": alert.ends_ns,
        "alert": alert.alert,
    }


def _accepted(rows: Sequence[Any]) -> list[Accepted]:
    return [
        Accepted(verdict=verdict, event_id=event_id, run_id=run_id, reason=reason)
        for verdict, event_id, run_id, reason in rows
    ]
