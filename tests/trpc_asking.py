"""Requests to a tRPC application without a socket, to the byte."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

JSON = ("content-type", "application/json")


@dataclass(frozen=True)
class Answered:
    status: int
    headers: dict[str, str]
    chunks: list[bytes]

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def ask(
    app: Any,
    method: str,
    target: str,
    body: bytes = b"",
    headers: Sequence[tuple[str, str]] = (JSON,),
    **scope: Any,
) -> Answered:
    """One exchange; a client that stays until the end."""
    raw_path, _, query = target.partition("?")
    told = {
        "type": "http",
        "method": method,
        "path": unquote(raw_path),
        "raw_path": raw_path.encode(),
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers],
        "root_path": "",
        **scope,
    }
    incoming = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[dict[str, Any]] = []

    async def receive() -> Any:
        if not incoming:
            await asyncio.Event().wait()
        return incoming.pop()

    async def send(message: Any) -> None:
        sent.append(message)

    await app(told, receive, send)
    answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    chunks = [message.get("body", b"") for message in sent[1:]]
    return Answered(sent[0]["status"], answered, [chunk for chunk in chunks if chunk])
