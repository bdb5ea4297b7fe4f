"""The shop on Flask: psycopg, or a session of SQLAlchemy."""

from typing import Any

import psycopg
from flask import Flask, Response, abort, g, request
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool
from werkzeug.exceptions import HTTPException

from rest_shop import Shop, answer
from semel.flask import once


class Declined(HTTPException):
    code = 402


def application(dsn: str, url: str, shop: Shop, *, driver: str, **rules: Any) -> Flask:  # noqa: C901 - an application is one function here
    engine = create_engine(url, poolclass=NullPool)
    app = Flask(__name__)

    def connection() -> Any:
        if "conn" not in g:
            g.conn = Session(engine) if driver == "sqlalchemy" else psycopg.connect(dsn)
        return g.conn

    @app.teardown_appcontext
    def close(_: Any) -> None:
        if "conn" in g:
            g.pop("conn").close()

    def run(sql: str, *args: Any) -> Any:
        if driver == "sqlalchemy":
            names = {f"a{n}": each for n, each in enumerate(args)}
            for name in names:
                sql = sql.replace("%s", f":{name}", 1)
            result = connection().execute(text(sql), names)
            return result.first() if result.returns_rows else None
        cursor = connection().execute(sql, args)
        return cursor.fetchone() if cursor.description else None

    guarded = once(
        project="shop",
        connection=connection,
        actor=lambda: request.headers.get("X-User"),
        **rules,
    )

    @app.route("/payments", methods=["POST", "PATCH"], endpoint="pay")
    @app.post("/others", endpoint="other")
    @app.post("/uploads", endpoint="upload")
    @app.post("/accounts/<int:account>/deposit", endpoint="deposit")
    @guarded
    def pay(account: int = 0) -> Any:
        act = request.headers.get("X-Do", "")
        [payment_id] = run(
            "insert into payment (what) values (%s) returning id", act or "plain"
        )
        body = request.files["file"].read() if request.files else request.get_data()
        shop.fail(act)
        if sql := shop.sql(act):
            run(sql)
        if act == "http-refuse":
            abort(404)
        if act == "http-card":
            raise Declined(f"declined {payment_id}")
        if act == "hold":
            shop.gate.wait()
        if act == "reply":
            g.semel.reply({"replied": payment_id}, status=402, headers=[("X-Said", "1")])
        if act == "journal":
            g.semel.journal("payments", {"id": payment_id})
        said = answer(act, payment_id, body)
        pieces: Any = said.body
        if said.stream:
            pieces = (said.body[n : n + 100] for n in range(0, len(said.body), 100))
        made = Response(pieces, said.status)
        made.headers.clear()
        made.headers.extend(said.headers)
        if act == "background":
            made.call_on_close(lambda: _note(dsn))
        return made

    @app.route("/payments", methods=["GET", "PUT", "DELETE"])
    @guarded
    def others() -> str:
        with psycopg.connect(dsn) as own:
            own.execute("insert into payment (what) values (%s)", (request.method,))
        return ""

    return app


def _note(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as own:
        own.execute("insert into note select id::text from payment")
