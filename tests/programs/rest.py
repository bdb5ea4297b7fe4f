"""The shop on Starlette or FastAPI, on a port of its own that it prints: rest.py FRONT DSN."""

import socket
import sys
from pathlib import Path

import uvicorn

sys.path.insert(0, str(Path(__file__).parents[1]))

from fix_rest import RULES
from rest_fastapi import application as fastapi
from rest_shop import Shop
from rest_starlette import application as starlette

front, dsn = sys.argv[1:]
app = (
    fastapi(dsn, "postgresql+asyncpg://", Shop(), driver="psycopg", **RULES)
    if front == "fastapi"
    else starlette(dsn, Shop(), take=front.endswith("taken"), **RULES)
)
door = socket.create_server(("127.0.0.1", 0))
print(door.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[door])
