"""Views that are classes, behind `once` of Django."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from fix_rest import Fronts
from fix_world import Conn
from rest_shop import operations


@pytest.fixture
def request_of(fronts: Fronts, ledger: Conn) -> Callable[[], Any]:
    del ledger
    fronts.client("django")  # it sets Django up
    from django.test import RequestFactory

    return lambda: RequestFactory().post("/", headers={"Idempotency-Key": "k"})


def test_an_async_class_is_executed_once(request_of: Callable[[], Any], ledger: Conn) -> None:
    from django.http import HttpRequest, HttpResponse
    from django.views import View

    from semel.django import once

    executed: list[int] = []

    class Pay(View):  # type: ignore[misc]
        async def post(self, _: HttpRequest) -> HttpResponse:
            executed.append(1)
            return HttpResponse("paid")

    view: Any = once(project="shop", actor=lambda _: "alice")(Pay.as_view())

    async def twice() -> list[HttpResponse]:
        return [await view(request_of()) for _ in "12"]

    first, again = asyncio.run(twice())
    assert first.content == again.content == b"paid"
    assert again.headers["Idempotent-Replayed"] == "true"
    assert executed == [1]
    assert operations(ledger) == [("SUCCEEDED", 1)]


def test_a_dispatch_that_does_not_say_that_it_is_async_is_refused(
    request_of: Callable[[], Any], ledger: Conn
) -> None:
    from django.http import HttpRequest, HttpResponse
    from django.utils.decorators import method_decorator
    from django.views import View

    from semel.django import once

    executed: list[int] = []
    guard = once(project="shop", actor=lambda _: "alice")

    @method_decorator(guard, name="dispatch")
    class Pay(View):  # type: ignore[misc]
        async def post(self, _: HttpRequest) -> HttpResponse:
            executed.append(1)
            return HttpResponse("paid")

    with pytest.raises(TypeError, match="decorate the async"):
        Pay.as_view()(request_of())
    assert executed == []
    assert operations(ledger) == [("FAILED", 1)]
