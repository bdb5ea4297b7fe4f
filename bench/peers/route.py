"""
Route: what a team writes by hand, to compare an ingress with.

A FastAPI route that proves who sent the event where that is signed, inserts it, once for each
key, and its job, in one transaction on a pooled psycopg connection. It keeps less than ours: no
digest, no raw body, no delivery.

    route.py setup | serve PORT
"""

import hashlib
import hmac
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import psycopg
import uvicorn
from fastapi import FastAPI, Header, HTTPException, Request
from fastapi.responses import JSONResponse
from psycopg.types.json import Jsonb
from psycopg_pool import AsyncConnectionPool

DSN = os.environ["BENCH_DSN"]
SECRET = os.environ.get("BENCH_SECRET", "").encode()
CONNECTIONS = 10  # as our server's default
TABLES = """
create table event (
    source text, key text, received_at timestamptz not null default now(), body jsonb not null,
    primary key (source, key)
);
create table job (
    id bigint generated always as identity primary key, source text not null, key text not null,
    status text not null default 'pending', input jsonb not null,
    created_at timestamptz not null default now()
);
create index job_pending on job (id) where status = 'pending';
"""
pool = AsyncConnectionPool(DSN, min_size=CONNECTIONS, max_size=CONNECTIONS, open=False)


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
    async with pool:
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/in/github")
async def github(
    request: Request,
    x_github_delivery: Annotated[str, Header()],
    x_hub_signature_256: Annotated[str, Header()],
) -> JSONResponse:
    raw = await request.body()
    mac = "sha256=" + hmac.digest(SECRET, raw, hashlib.sha256).hex()
    if not hmac.compare_digest(mac.encode(), x_hub_signature_256.encode()):
        raise HTTPException(401)
    return await keep("github", x_github_delivery, json.loads(raw))


@app.post("/in/{source}")
async def receive(
    source: str, request: Request, idempotency_key: Annotated[str, Header()]
) -> JSONResponse:
    return await keep(source, idempotency_key, await request.json())


async def keep(source: str, key: str, value: Any) -> JSONResponse:
    """Answered when it is committed."""
    body = Jsonb(value)
    async with pool.connection() as conn, conn.transaction():
        cursor = await conn.execute(
            "insert into event (source, key, body) values (%s, %s, %s) on conflict do nothing",
            (source, key, body),
        )
        if not cursor.rowcount:
            return JSONResponse({"duplicate": True})
        cursor = await conn.execute(
            "insert into job (source, key, input) values (%s, %s, %s) returning id",
            (source, key, body),
        )
        [(job,)] = await cursor.fetchall()
    return JSONResponse({"run_id": job, "duplicate": False}, status_code=201)


if sys.argv[1] == "setup":
    with psycopg.connect(DSN, autocommit=True) as conn:
        conn.execute(TABLES)
else:
    uvicorn.run(
        app,
        port=int(sys.argv[2]),
        loop="uvloop",
        http="httptools",
        log_level="warning",
        access_log=False,
    )
