"""
The shop on Django: below /plain its views are decorated, below /async they are coroutines too;
below /middleware and /amiddleware they are left to the middleware. One project for a process.
"""

from collections.abc import AsyncIterator
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
from django.urls import path
from psycopg.conninfo import conninfo_to_dict

from rest_shop import Shop, answer
from semel.django import once

urlpatterns: list[Any] = []
_ROUTES = ("payments", "others", "uploads", "accounts/<int:account>/deposit")


def actor(request: HttpRequest) -> str | None:
    user: str | None = request.headers.get("X-User")
    return user


def applications(dsn: str, shop: Shop, **rules: Any) -> tuple[WSGIHandler, ASGIHandler]:
    """The project, for the rest of this process: in threads, and in an event loop."""
    if not settings.configured:
        settings.configure(USE_TZ=True)
        django.setup()
    settings.ROOT_URLCONF = __name__
    settings.ALLOWED_HOSTS = ["*"]
    settings.MIDDLEWARE = ["semel.django.IdempotencyMiddleware"]
    settings.SEMEL = {"project": "shop", "actor": "rest_django.actor", **rules}
    parts = conninfo_to_dict(dsn)
    default = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts["dbname"],
        "USER": parts["user"],
        "HOST": parts["host"],
        "ATOMIC_REQUESTS": True,
    }
    connections.settings = connections.configure_settings({"default": default})
    act = Acts(dsn, shop)
    guard = once(project="shop", actor=actor, **rules)

    def pay(request: HttpRequest, account: int = 0) -> HttpResponseBase:
        return act.on(request)

    async def apay(request: HttpRequest, account: int = 0) -> HttpResponseBase:
        return await sync_to_async(act.on)(request)  # as Django's async ORM does, call by call

    @transaction.non_atomic_requests  # type: ignore[untyped-decorator]
    async def own(request: HttpRequest, account: int = 0) -> HttpResponseBase:
        return await sync_to_async(transaction.atomic(act.on))(request)

    views = {"plain": guard(pay), "async": guard(apay), "middleware": pay, "amiddleware": own}
    urlpatterns[:] = [path(f"{n}/{r}", view) for n, view in views.items() for r in _ROUTES]
    return WSGIHandler(), ASGIHandler()


class Acts:
    """What the views do."""

    def __init__(self, dsn: str, shop: Shop) -> None:
        self._dsn = dsn
        self._shop = shop

    def on(self, request: HttpRequest) -> HttpResponseBase:
        act = request.headers.get("X-Do", "")
        body = request.FILES["file"].read() if request.FILES else request.body
        what = (act or "plain") if request.method in {"POST", "PATCH"} else request.method
        with connection.cursor() as cursor:
            cursor.execute("insert into payment (what) values (%s) returning id", [what])
            [payment_id] = cursor.fetchone()
            if sql := self._shop.sql(act):
                cursor.execute(sql)
        self._shop.fail(act)
        self._more(request, act, payment_id)
        return _response(answer(act, payment_id, body), loop=request.path.startswith("/a"))

    def _more(self, request: Any, act: str, payment_id: int) -> None:
        match act:
            case "http-refuse":
                raise Http404("no such account")
            case "hold":
                self._shop.gate.wait()
            case "reply":
                said = {"replied": payment_id}
                request.semel.reply(said, status=402, headers=[("X-Said", "1")])
            case "journal":
                request.semel.journal("payments", {"id": payment_id})
            case "background":
                transaction.on_commit(self._note)
            case _:
                pass

    def _note(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as own:
            own.execute("insert into note select id::text from payment")


def _response(said: Any, *, loop: bool) -> HttpResponseBase:
    made: Any
    if said.stream:
        pieces = (said.body[n : n + 100] for n in range(0, len(said.body), 100))
        made = StreamingHttpResponse(_later(pieces) if loop else pieces, status=said.status)
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


async def _later(pieces: Any) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
