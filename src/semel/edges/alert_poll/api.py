"""
Alertmanager's API, version 2, as far as a poll asks it: what it is, who receives, what fires.

One connection for each question, no redirect followed, no proxy of the environment used, and
every answer bounded. What it says is not judged here.

Source: prometheus/alertmanager, api/v2/openapi.yaml.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import h11

if TYPE_CHECKING:
    from semel.config import ReconcileSettings
    from semel.config.url import Url

#: From the look-up of the name to the end of the answer.
ANSWER_SECONDS_MAX = 10.0
#: Some 40,000 alerts.
ANSWER_BYTES_MAX = 32 * 1024 * 1024
_CHUNK_BYTES = 256 * 1024
_OK = 200


class NoAnswer(Exception):
    """It could not be asked, or did not answer what such an API does; says why, and no secret."""


async def status(settings: ReconcileSettings) -> str:
    """When it started, in its own words; another text means that it forgot its alerts."""
    told = await _get(settings, "/api/v2/status")
    began = told.get("uptime") if isinstance(told, dict) else None
    if not isinstance(began, str):
        raise NoAnswer(f"{settings.at.origin} does not say its uptime: it is no Alertmanager")
    return began


async def groups(settings: ReconcileSettings) -> list[dict[str, Any]]:
    """
    The groups of its alerts, those that are silenced or inhibited too; not what is resolved.

    Raises:
        NoAnswer: also where it has no such receiver.
    """
    asked = "/api/v2/alerts/groups?active=true&silenced=true&inhibited=true"
    if settings.receiver is not None:
        named = await _get(settings, "/api/v2/receivers")
        listed = named if isinstance(named, list) else []
        there = [one.get("name") for one in listed if isinstance(one, dict)]
        if settings.receiver not in there:
            raise NoAnswer(
                f"{settings.at.origin} has no receiver {settings.receiver!r}; there are"
                f" {', '.join(map(str, there[:10]))}"
            )
        asked += f"&receiver={quote(re.escape(settings.receiver), safe='')}"
    told = await _get(settings, asked)
    if not isinstance(told, list) or not all(_is_group(one) for one in told):
        raise NoAnswer(f"{settings.at.origin} does not answer with groups of alerts")
    return told


def _is_group(told: Any) -> bool:
    return isinstance(told, dict) and isinstance(told.get("alerts"), list)


async def _get(settings: ReconcileSettings, target: str) -> Any:
    url = settings.at
    try:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            code, body = await _exchange(url, url.at(target).target, settings.header)
    except TimeoutError:
        raise NoAnswer(f"{url.origin} gave no answer within {ANSWER_SECONDS_MAX:g} s") from None
    except ssl.SSLCertVerificationError:
        raise NoAnswer(f"the certificate of {url.origin} is not trusted") from None
    except (OSError, UnicodeError, h11.ProtocolError) as bad:
        raise NoAnswer(f"{url.origin} cannot be reached: {type(bad).__name__}") from None
    if code != _OK:
        raise NoAnswer(f"{url.origin} answers {code} to {target.partition('?')[0]}")
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise NoAnswer(
            f"{url.origin} answers {target.partition('?')[0]} with no JSON"
        ) from None


async def _exchange(url: Url, target: str, authorization: str | None) -> tuple[int, bytes]:
    secure = _trusted() if url.scheme == "https" else None
    reader, writer = await asyncio.open_connection(url.host, url.port, ssl=secure)
    try:
        told = [("Host", url.authority), ("User-Agent", "semel"), ("Connection", "close")]
        if authorization is not None:
            told.append(("Authorization", authorization))
        link = h11.Connection(our_role=h11.CLIENT)
        sent = link.send(h11.Request(method="GET", target=target, headers=told))
        writer.write((sent or b"") + (link.send(h11.EndOfMessage()) or b""))
        code, kept, size = 0, [], 0
        while True:
            said = link.next_event()
            if said is h11.NEED_DATA:
                link.receive_data(await reader.read(_CHUNK_BYTES))
            elif isinstance(said, h11.Response):
                code = said.status_code
            elif isinstance(said, h11.Data):
                size += len(said.data)
                if size > ANSWER_BYTES_MAX:
                    raise NoAnswer(f"{url.origin} answers more than {ANSWER_BYTES_MAX} bytes")
                kept.append(bytes(said.data))
            elif isinstance(said, h11.EndOfMessage):
                return code, b"".join(kept)
    finally:
        writer.close()


@cache
def _trusted() -> ssl.SSLContext:
    return ssl.create_default_context()
