"""
An httpx client that keeps one key for each user action and retries safely.

    with semel.client.Client(keys=FileKeys("actions.db"), base_url=...) as client:
        pay = client.action("pay", order.id)
        answer = pay.post("/payments", json={"cents": 500})
        pay.done()

Needs the extra `client`.
"""

try:
    import httpx as _httpx
except ImportError as missing:
    raise ImportError(f"{missing}: pip install 'semel[client]'") from missing

from semel.edges.client.action import Action, AsyncAction
from semel.edges.client.awaited import AsyncClient
from semel.edges.client.blocking import Client
from semel.edges.client.course import Tried, tried
from semel.edges.client.keys import FileKeys, KeyStore, MemoryKeys, PairKeys
from semel.edges.client.patience import Patience
from semel.edges.client.problem import Problem

del _httpx

__all__ = [
    "Action",
    "AsyncAction",
    "AsyncClient",
    "Client",
    "FileKeys",
    "KeyStore",
    "MemoryKeys",
    "PairKeys",
    "Patience",
    "Problem",
    "Tried",
    "tried",
]
