"""
Alertmanager: a webhook receiver, schema version 4 and whatever later versions add to it.

Alertmanager has no id of a delivery and no signature. It repeats itself in retries, HA copies,
reminders and grown groups, so neither its bytes nor its group key say whether something
happened: the notification is handed on whole, and the fold in SQL finds what it changes. What
gets no 2xx is sent again at each group interval for ever, so what is unusable is kept and
answered 200, and takes none of the alerts beside it with it.

Source: prometheus/alertmanager, notify/webhook and template.Data; RFC 3339.
"""

from __future__ import annotations

import base64
import json
import math
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from semel.core.text import load, load_object
from semel.edges.channel import Notification, admit, bearer, only, quarantined
from semel.errors import BadRequest
from semel.model import Alert

if TYPE_CHECKING:
    from semel.config import Source
    from semel.edges.channel import Reading, Request
    from semel.model import Json

#: Alertmanager's own has 16; the database's index would refuse one of thousands.
FINGERPRINT_CHARS_MAX = 128
#: Times beyond are taken for this one, 142 years from 1970: the fold subtracts two of them.
NS_MAX = 4_500_000_000_000_000_000
#: Of so many unusable alerts it is said what is wrong.
TOLD_MAX = 3
#: Python reads an integer of at most 4300.
DIGITS_MAX = 4000

#: Since 0.32 a receiver may have a `payload` of its own, which may be anything.
_OTHER = (
    "alerts is missing: it is no notification, or its receiver has a payload of its own, which must"
    " keep alerts, and of each the fingerprint, status, startsAt and endsAt"
)
_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?"
    r"(?:[Zz]|([+-])([01]\d|2[0-3]):([0-5]\d))",
    re.ASCII,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LEAP = 60


def read(request: Request, source: Source) -> Reading:
    """One notification: the envelope, and every usable alert in it."""
    admit(request, source, _given)
    try:
        envelope, told = _parts(request.body)
    except BadRequest as bad:
        return quarantined(request, source, str(bad))
    if told is None:
        return quarantined(request, source, _OTHER)
    if not isinstance(told, list) or not told:
        return quarantined(request, source, "alerts is missing, no list, or empty")
    alerts, faults = _alerts(told)
    unusable = _told(faults, len(told)) if faults else None
    if not alerts:
        return quarantined(request, source, str(unusable))
    return Notification(envelope=envelope, alerts=alerts, unusable=unusable)


def _parts(body: bytes) -> tuple[dict[str, Json], Any]:
    """The envelope and its alerts; in place of one that cannot be kept stands the reason."""
    try:
        envelope = load_object(body)
    except BadRequest as bad:
        # What cannot be kept may be in one alert alone, so each is looked at by itself.
        try:
            told = json.loads(body.decode(), parse_int=_integer)
            alerts = [_kept(alert) for alert in told.pop("alerts")]
            return load_object(json.dumps(told).encode()), alerts
        except (ValueError, RecursionError, AttributeError, TypeError, KeyError, BadRequest):
            raise bad from None
    return envelope, envelope.pop("alerts", None)


def _kept(alert: Any) -> Json | BadRequest:
    try:
        return load(json.dumps(alert).encode())
    except BadRequest as bad:
        return bad


def _integer(text: str) -> float:
    return int(text) if len(text) <= DIGITS_MAX else math.inf


def _given(request: Request) -> list[bytes]:
    """Bearer credentials; of Basic ones the password, or the whole user:password."""
    scheme, _, rest = only(request, "authorization").strip().partition(b" ")
    if scheme.lower() != b"basic":
        return bearer(request)
    try:
        whole = base64.b64decode(rest.strip(), validate=True)
    except ValueError:
        return []
    user, colon, password = whole.partition(b":")  # a user has no colon, a password may
    return [password, user + colon + password] if colon else []


def _alerts(told: list[Json | BadRequest]) -> tuple[list[Alert], list[str]]:
    """
    The usable alerts, and what is wrong with the others.

    Of a fingerprint the latest of each status stands: no alert has two states at a time, but a
    notification may tell that it fired and that it is over.
    """
    usable: dict[tuple[str, str], Alert] = {}
    faults = []
    for n, each in enumerate(told):
        try:
            alert = _alert(n, each)
        except BadRequest as bad:
            faults.append(str(bad))
            continue
        name = (alert.fingerprint, alert.status)
        other = usable.get(name)
        if other is None or (other.starts_ns, other.ends_ns) < (alert.starts_ns, alert.ends_ns):
            usable[name] = alert
    return list(usable.values()), faults


def _told(faults: list[str], count: int) -> str:
    more = f"; and {len(faults) - TOLD_MAX} more" if len(faults) > TOLD_MAX else ""
    return f"{'; '.join(faults[:TOLD_MAX])}{more} ({len(faults)} of {count} alerts)"


def _alert(n: int, alert: Json | BadRequest) -> Alert:
    if isinstance(alert, BadRequest):
        raise BadRequest(f"alerts[{n}]: {alert}")
    if not isinstance(alert, dict):
        raise BadRequest(f"alerts[{n}] is no object")
    fingerprint = alert.get("fingerprint")
    if not isinstance(fingerprint, str) or not 0 < len(fingerprint) <= FINGERPRINT_CHARS_MAX:
        raise BadRequest(f"alerts[{n}].fingerprint is missing, empty, too long or no text")
    status = _status(n, alert.get("status"))
    ends = alert.get("endsAt")
    return Alert(
        fingerprint=fingerprint,
        status=status,
        starts_ns=_nanoseconds(f"alerts[{n}].startsAt", alert.get("startsAt")),
        ends_ns=0 if status == "firing" else _nanoseconds(f"alerts[{n}].endsAt", ends),
        alert=alert,
    )


def _status(n: int, status: Json) -> Literal["firing", "resolved"]:
    match status:
        case "firing":
            return "firing"
        case "resolved":
            return "resolved"
        case _:
            raise BadRequest(f"alerts[{n}].status is neither firing nor resolved")


def _nanoseconds(name: str, text: Json) -> int:
    """
    An RFC 3339 time as unix nanoseconds; Go's zero time, in the year 1, is 0.

    A leap second is the last moment of the second before it.
    """
    found = _TIME.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise BadRequest(f"{name} is no RFC 3339 time")
    *numbers, fraction, sign, hours, minutes = found.groups()
    year, month, day, hour, minute, second = map(int, numbers)
    if year == 1:
        return 0
    if second == _LEAP:
        second, fraction = _LEAP - 1, "9" * 9
    try:
        at = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        raise BadRequest(f"{name} is no date") from None
    since = at - _EPOCH
    if sign:
        offset = timedelta(hours=int(hours), minutes=int(minutes))
        since += offset if sign == "-" else -offset
    whole = since // timedelta(seconds=1)
    ns = whole * 1_000_000_000 + int((fraction or "0").ljust(9, "0"))
    return max(-NS_MAX, min(ns, NS_MAX))
