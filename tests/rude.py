"""An HTTP server whose every byte a test decides."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Asked:
    """What came."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


#: What is sent for a request, whole; None hangs up.
Manners = Callable[[Asked], bytes | None]


def reply(
    status: int, body: Any = b"", kind: str = "application/json", **headers: str
) -> bytes:
    """An answer of HTTP/1.1."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(raw)}\r\n{more}\r\n"
    return head.encode() + raw


@asynccontextmanager
async def rude(manners: Manners) -> AsyncIterator[str]:
    """Serves on a port of its own; its origin."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                method, target, _ = head[0].split(" ")
                headers = {
                    name.lower(): value
                    for name, _, value in (line.partition(": ") for line in head[1:] if line)
                }
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                answer = manners(Asked(method, target, headers, body))
                if answer is None:
                    break
                writer.write(answer)
                await writer.drain()
                if b"Connection: close" in answer[:200]:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 20)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


class McpManners:
    """A stateless MCP server that behaves, but as *call* says for tools/call."""

    def __init__(self) -> None:
        self.call: Callable[[Any], bytes | None] = self.good
        self.calls: list[Any] = []

    def __call__(self, asked: Asked) -> bytes | None:
        if asked.method != "POST":
            return reply(405)
        message = json.loads(asked.body)
        match message.get("method"):
            case "tools/call":
                self.calls.append(message)
                return self.call(message)
            case "tools/list":
                tools = [
                    {"name": "plain", "inputSchema": {"type": "object"}},
                    {
                        "name": "reads",
                        "inputSchema": {"type": "object"},
                        "annotations": {"readOnlyHint": True},
                    },
                    {
                        "name": "again",
                        "inputSchema": {"type": "object"},
                        "annotations": {"idempotentHint": True},
                    },
                ]
                return self.result(message, {"tools": tools})
            case "initialize":
                info = {"name": "rude", "version": "1"}
                told = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": info,
                }
                return self.result(message, told)
            case method if "id" in message:
                error = {"code": -32601, "message": f"no {method}"}
                return reply(200, {"jsonrpc": "2.0", "id": message["id"], "error": error})
            case _:
                return reply(202)

    @staticmethod
    def result(message: Any, value: Any) -> bytes:
        return reply(200, {"jsonrpc": "2.0", "id": message["id"], "result": value})

    def good(self, message: Any) -> bytes:
        return self.result(message, {"content": [{"type": "text", "text": "done"}]})
