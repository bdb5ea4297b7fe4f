"""
Differences: what the API says, written as the notifications that Alertmanager would have sent.

Each is read by the channel like one that came over HTTP, so that an alert is the same alert
whoever speaks of it. Nothing here asks anybody.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from semel.core.alert_polls import Standing
from semel.edges.channel import Notification, Request
from semel.edges.channels import READERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from semel.config import Source
    from semel.core.alert_polls import Difference

#: As Alertmanager writes when a firing alert ends.
NEVER = "0001-01-01T00:00:00Z"
#: The member of an envelope that says why it was sent; since 0.32 Alertmanager has others.
REASON = "semel reconcile"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NS = 1_000_000_000


def standings(source: Source, groups: Iterable[Mapping[str, Any]]) -> list[Standing]:
    """Every alert of *groups* that can be read, once."""
    found: dict[str, Standing] = {}
    for group in groups:
        alerts = _alerts(group)
        reading = read(source, _written(source, group, [_firing(one) for one in alerts]))
        news = {one["fingerprint"] for one in alerts if _is_news(one)}
        for alert in reading.alerts if reading else ():
            found.setdefault(
                alert.fingerprint,
                Standing(
                    fingerprint=alert.fingerprint,
                    starts_ns=alert.starts_ns,
                    news=alert.fingerprint in news,
                ),
            )
    return list(found.values())


def found(
    source: Source, groups: Iterable[Mapping[str, Any]], differences: Iterable[Difference]
) -> list[bytes]:
    """The notifications of what was found, one for each group that has any of it."""
    wanted = {one.fingerprint for one in differences if one.what == "found"}
    bodies = []
    for group in groups:
        alerts = [_firing(one) for one in _alerts(group) if one["fingerprint"] in wanted]
        wanted -= {one["fingerprint"] for one in alerts}
        if alerts:
            bodies.append(_written(source, group, alerts))
    return bodies


def gone(source: Source, told: Sequence[tuple[Difference, Mapping[str, Any]]]) -> bytes:
    """
    The notification of what is over: each with what is known of its alert.

    It ended after it was last spoken of, so that is when it is said to have: whatever starts later
    is another episode.
    """
    alerts = [
        {
            "labels": {},
            "annotations": {},
            **known,
            "status": "resolved",
            "startsAt": moment(one.starts_ns),
            "endsAt": moment(max(one.starts_ns, one.seen_ns or 0)),
            "fingerprint": one.fingerprint,
        }
        for one, known in told
    ]
    return _written(source, {}, alerts)


def read(source: Source, body: bytes) -> Notification | None:
    """*body* as the channel reads it; None where no alert of it can be read."""
    request = Request(method="POST", headers=[], body=body, local=True, admitted=True)
    reading = READERS[source.channel](request, source)
    return reading if isinstance(reading, Notification) else None


def moment(ns: int) -> str:
    """Unix nanoseconds as RFC 3339; 0 as Go's zero time."""
    if ns == 0:
        return NEVER
    at = _EPOCH + timedelta(seconds=ns // _NS)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{ns % _NS:09}Z"


def _written(
    source: Source, group: Mapping[str, Any], alerts: Sequence[Mapping[str, Any]]
) -> bytes:
    receiver = group.get("receiver")
    url = source.reconcile.at.origin if source.reconcile else ""
    is_firing = any(one["status"] == "firing" for one in alerts)
    told = {
        "receiver": receiver.get("name") if isinstance(receiver, dict) else None,
        "status": "firing" if is_firing else "resolved",
        "alerts": alerts,
        "groupLabels": group.get("labels") or {},
        "commonLabels": _common([one.get("labels") for one in alerts]),
        "commonAnnotations": _common([one.get("annotations") for one in alerts]),
        "externalURL": url,
        "version": "4",
        "notification_reason": REASON,
    }
    return json.dumps(told).encode()


def _alerts(group: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Those of *group* that have a name."""
    return [
        one
        for one in group["alerts"]
        if isinstance(one, dict) and isinstance(one.get("fingerprint"), str)
    ]


def _firing(alert: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("labels", "annotations", "startsAt", "generatorURL", "fingerprint")
    return {
        **{key: alert[key] for key in kept if key in alert},
        "status": "firing",
        "endsAt": NEVER,
    }


def _is_news(alert: Mapping[str, Any]) -> bool:
    """Whether Alertmanager would notify of it: silences, inhibitions and mute times forbid it."""
    told = alert.get("status")
    if not isinstance(told, dict) or told.get("state") != "active":
        return False
    return not any(told.get(key) for key in ("silencedBy", "inhibitedBy", "mutedBy"))


def _common(each: Sequence[Any]) -> dict[str, Any]:
    tables = [one for one in each if isinstance(one, dict)]
    if not tables:
        return {}
    return {
        key: value
        for key, value in tables[0].items()
        if all(key in other and other[key] == value for other in tables[1:])
    }
