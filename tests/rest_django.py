"""The shop on Django: the decorator, and the middleware; sync and async. One at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import django
import psycopg
from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.db import connection, connections, transaction
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    StreamingHttpResponse,
)
from django.test import override_settings
from django.urls import path
from psycopg.conninfo import conninfo_to_dict

from rest_servers import Client, asgi, wsgi
from rest_shop import Boom, Shop, answer
from semel.django import once

_WAYS = ("", "-async", "-middleware", "-middleware-async")


def actor(request: HttpRequest) -> str | None:
    return request.headers.get("X-User")


@contextmanager
def serving(dsn: str, shop: Shop, *, way: str, **rules: Any) -> Iterator[Client]:
    """The shop in one of _WAYS."""
    assert way in _WAYS
    rules = {"commit": (402,), "answer_bytes_max": 2000, "body_bytes_max": 4000, **rules}
    if not settings.configured:
        settings.configure(USE_TZ=True)
        django.setup()
    global urlpatterns  # noqa: PLW0603 - Django finds them by this name
    recorded = "middleware" in way
    parts = conninfo_to_dict(dsn)
    before = connections.settings
    connections.settings = connections.configure_settings(
        {
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": parts["dbname"],
                "USER": parts["user"],
                "HOST": parts["host"],
                "ATOMIC_REQUESTS": not way.endswith("async"),
            }
        }
    )
    guard = (lambda view: view) if recorded else once(project="shop", actor=actor, **rules)
    act_on = _view(dsn, shop)

    def pay(request: HttpRequest, account: int = 0) -> HttpResponseBase:
        if recorded:
            with transaction.atomic():
                return act_on(request)
        return act_on(request)

    async def apay(request: HttpRequest, account: int = 0) -> HttpResponseBase:
        return await sync_to_async(pay)(request)  # as Django's async ORM does, call by call

    view = guard(apay if way.endswith("async") else pay)
    urlpatterns = [
        path(name, view)
        for name in ("payments", "others", "uploads", "accounts/<int:account>/deposit")
    ]
    told = {"project": "shop", "actor": "rest_django.actor", **rules}
    middleware = ["semel.django.IdempotencyMiddleware"] if recorded else []
    try:
        with override_settings(
            ROOT_URLCONF=__name__,
            MIDDLEWARE=middleware,
            SEMEL=told,
            ALLOWED_HOSTS=["*"],
            SECRET_KEY="of the tests",
            DEBUG_PROPAGATE_EXCEPTIONS=False,
        ):
            if way.endswith("async"):
                with asgi(ASGIHandler(), lifespan="off") as client:
                    yield client
            else:
                with wsgi(WSGIHandler()) as client:
                    yield client
    finally:
        connections.settings = before


def _view(dsn: str, shop: Shop) -> Any:
    def act_on(request: HttpRequest) -> HttpResponseBase:
        act = request.headers.get("X-Do", "")
        body = request.FILES["file"].read() if request.FILES else request.body
        with connection.cursor() as cursor:
            what = act or "plain" if request.method in {"POST", "PATCH"} else request.method
            cursor.execute("insert into payment (what) values (%s) returning id", [what])
            [payment_id] = cursor.fetchone()
            if act == "deferred":
                cursor.execute("insert into strict values (1), (1)")
            if act == "commit":
                cursor.execute("commit")
        if act == "raise":
            raise Boom("a fault of the handler")
        if act == "http-refuse":
            raise Http404("no such account")
        if act == "hold":
            shop.gate.wait()
        if act == "reply":
            request.semel.reply(  # type: ignore[attr-defined]
                {"replied": payment_id}, status=402, headers=[("X-Said", "1")]
            )
        if act == "journal":
            request.semel.journal("payments", {"id": payment_id})  # type: ignore[attr-defined]
        if act == "background":
            transaction.on_commit(lambda: _note(dsn))
        said = answer(act, payment_id, body)
        made: Any
        if said.stream:
            pieces = (said.body[n : n + 100] for n in range(0, len(said.body), 100))
            made = StreamingHttpResponse(pieces, status=said.status)
        else:
            made = HttpResponse(said.body, status=said.status)
        del made["Content-Type"]
        for name, value in said.headers:
            if name == "Set-Cookie":
                made.cookies.load(value)
            elif name in made:
                made[name] += f", {value}"
            else:
                made[name] = value
        return made

    return act_on


def _note(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as own:
        own.execute("insert into note select id::text from payment")
