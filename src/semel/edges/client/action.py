"""
An action: what a user did once, and the one request that carries it to the server.

Its key is the store's, so it is the same at every try, in every process and after a restart, until
`done()`. An action that needs two requests is two actions: a key names one operation, and the
server refuses it for another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio.to_thread
import httpx

from semel.edges.client.keys import HEADER, quoted

if TYPE_CHECKING:
    from semel.edges.client.keys import KeyStore


class _Named:
    def __init__(self, keys: KeyStore, name: str, action_id: str) -> None:
        self._keys = keys
        self.name = name
        self.action_id = action_id

    def _keep(self) -> str:
        return self._keys.keep(self.name, self.action_id)

    def _forget(self) -> None:
        self._keys.forget(self.name, self.action_id)


class Action(_Named):
    """One action of a Client. Made by `Client.action`."""

    def __init__(self, client: httpx.Client, keys: KeyStore, name: str, action_id: str) -> None:
        super().__init__(keys, name, action_id)
        self._client = client

    def request(self, method: str, url: httpx.URL | str, **options: Any) -> httpx.Response:
        """Send it: `httpx.Client.request`, with the action's key."""
        headers = _keyed(options.pop("headers", None), self._keep())
        return self._client.request(method, url, headers=headers, **options)

    def post(self, url: httpx.URL | str, **options: Any) -> httpx.Response:
        """Send it: `httpx.Client.post`, with the action's key."""
        return self.request("POST", url, **options)

    def patch(self, url: httpx.URL | str, **options: Any) -> httpx.Response:
        """Send it: `httpx.Client.patch`, with the action's key."""
        return self.request("PATCH", url, **options)

    def done(self) -> None:
        """Its answer is safe with the caller: forget the key. The same id is another action now."""
        self._forget()


class AsyncAction(_Named):
    """One action of an AsyncClient. Made by `AsyncClient.action`; its store works in a thread."""

    def __init__(
        self, client: httpx.AsyncClient, keys: KeyStore, name: str, action_id: str
    ) -> None:
        super().__init__(keys, name, action_id)
        self._client = client

    async def request(
        self, method: str, url: httpx.URL | str, **options: Any
    ) -> httpx.Response:
        """Send it: `httpx.AsyncClient.request`, with the action's key."""
        key = await anyio.to_thread.run_sync(self._keep)
        headers = _keyed(options.pop("headers", None), key)
        return await self._client.request(method, url, headers=headers, **options)

    async def post(self, url: httpx.URL | str, **options: Any) -> httpx.Response:
        """Send it: `httpx.AsyncClient.post`, with the action's key."""
        return await self.request("POST", url, **options)

    async def patch(self, url: httpx.URL | str, **options: Any) -> httpx.Response:
        """Send it: `httpx.AsyncClient.patch`, with the action's key."""
        return await self.request("PATCH", url, **options)

    async def done(self) -> None:
        """Its answer is safe with the caller: forget the key. The same id is another action now."""
        await anyio.to_thread.run_sync(self._forget)


def _keyed(headers: Any, key: str) -> httpx.Headers:
    sent = httpx.Headers(headers)
    sent[HEADER] = quoted(key)
    return sent
