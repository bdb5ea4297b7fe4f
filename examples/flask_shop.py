"""
A shop on Flask and plain psycopg: an order is placed once, however often its request is sent.

    export SEMEL_DSN=$(semel db start --json | jq -r .dsn)    # or your own database's
    semel migrate
    flask --app examples/flask_shop.py run

    curl -i localhost:5000/orders -H 'X-User: alice' -H 'Idempotency-Key: order-1' \\
        -H 'Content-Type: application/json' -d '{"item": "lamp", "pieces": 2}'

Sent again, the answer is the same to the byte and nothing is done; with other pieces it is 422.
"""

import os
from typing import Any

import psycopg
from flask import Flask, abort, g, request

from semel.flask import once

DSN = os.environ["SEMEL_DSN"]
app = Flask(__name__)

with psycopg.connect(DSN, autocommit=True) as setup:
    setup.execute("create table if not exists flask_stock (item text primary key, pieces int)")
    setup.execute("insert into flask_stock values ('lamp', 10) on conflict do nothing")
    setup.execute(
        'create table if not exists flask_order (id serial, "user" text, item text, pieces int)'
    )


def connection() -> psycopg.Connection[Any]:
    """One for each request; a program of yours has a pool."""
    if "connection" not in g:
        g.connection = psycopg.connect(DSN)
    conn: psycopg.Connection[Any] = g.connection
    return conn


@app.teardown_appcontext
def close(_: BaseException | None) -> None:
    if "connection" in g:
        g.connection.close()


def user() -> str:
    """Whoever your authentication says; it runs before anything is replayed."""
    return request.headers.get("X-User") or abort(401)


@app.post("/orders")
@once(project="shop", connection=connection, actor=user)
def place() -> Any:
    new = request.get_json()
    conn = connection()  # the one that is committed
    left = conn.execute(
        "update flask_stock set pieces = pieces - %s where item = %s returning pieces",
        (new["pieces"], new["item"]),
    ).fetchone()
    if left is None:
        abort(404)
    order = conn.execute(
        'insert into flask_order ("user", item, pieces) values (%s, %s, %s) returning id',
        (user(), new["item"], new["pieces"]),
    ).fetchone()
    if left[0] < 0 or order is None:  # what was written is undone; the same may succeed later
        return {"error": "not enough of it left"}, 409
    g.semel.journal("orders", {"order": order[0]})
    return {"order": order[0], "left": left[0]}, 201, {"Location": f"/orders/{order[0]}"}


@app.get("/orders")
def orders() -> list[int]:
    return [row[0] for row in connection().execute("select id from flask_order order by id")]
