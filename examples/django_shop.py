"""
A shop on Django in one file: an order is placed once, however often its request is sent.

    export SEMEL_DSN=$(semel db start --json | jq -r .dsn)    # or your own database's
    semel migrate
    python examples/django_shop.py runserver

    curl -i localhost:8000/orders -H 'X-User: alice' -H 'Idempotency-Key: order-1' \\
        -H 'Content-Type: application/json' -d '{"item": "lamp", "pieces": 2}'

Sent again, the answer is the same to the byte and nothing is done; with other pieces it is 422.
"""

import json
import os
import sys
from typing import Any

import django
from django.conf import settings
from django.core.management import execute_from_command_line
from django.core.wsgi import get_wsgi_application
from psycopg.conninfo import conninfo_to_dict

_dsn = conninfo_to_dict(os.environ["SEMEL_DSN"])
if not settings.configured:
    settings.configure(
        DEBUG=True,
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=__name__,
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": _dsn.get("dbname", ""),
                "OPTIONS": {k: v for k, v in _dsn.items() if k != "dbname"},
            }
        },
    )
    django.setup()

from django.db import connection, models  # noqa: E402 - Django must be set up before
from django.http import HttpRequest, HttpResponse, JsonResponse  # noqa: E402
from django.urls import path  # noqa: E402

from semel.django import once  # noqa: E402


class Stock(models.Model):  # type: ignore[misc] # Django has no types
    item = models.TextField(primary_key=True)
    pieces = models.IntegerField()

    class Meta:
        app_label = "shop"
        db_table = "django_stock"

    def __str__(self) -> str:
        return f"{self.pieces} of {self.item}"


class Order(models.Model):  # type: ignore[misc] # Django has no types
    user = models.TextField()
    item = models.TextField()
    pieces = models.IntegerField()

    class Meta:
        app_label = "shop"
        db_table = "django_order"

    def __str__(self) -> str:
        return f"{self.pieces} of {self.item} for {self.user}"


def user(request: HttpRequest) -> str | None:
    """Whoever your authentication says; with django.contrib.auth, `request.user.pk`."""
    name: str | None = request.headers.get("X-User")
    return name


@once(project="shop", actor=user)
def place(request: Any) -> HttpResponse:
    if request.method != "POST":
        return JsonResponse(
            list(Order.objects.order_by("id").values_list("id", flat=True)), safe=False
        )
    new = json.loads(request.body)
    stock = Stock.objects.select_for_update().filter(item=new["item"]).first()
    if stock is None:
        return JsonResponse({"error": "no such item"}, status=404)
    stock.pieces -= new["pieces"]
    stock.save()
    order = Order.objects.create(user=user(request), item=new["item"], pieces=new["pieces"])
    if stock.pieces < 0:  # what was written is undone, and the same request may succeed later
        return JsonResponse({"error": "not enough of it left"}, status=409)
    request.semel.journal("orders", {"order": order.pk})
    answer = JsonResponse({"order": order.pk, "left": stock.pieces}, status=201)
    answer["Location"] = f"/orders/{order.pk}"
    return answer


urlpatterns = [path("orders", place)]
application = get_wsgi_application()

if not connection.introspection.table_names() or "django_order" not in (
    connection.introspection.table_names()
):
    with connection.schema_editor() as editor:
        editor.create_model(Stock)
        editor.create_model(Order)
    Stock.objects.create(item="lamp", pieces=10)
connection.close()

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
