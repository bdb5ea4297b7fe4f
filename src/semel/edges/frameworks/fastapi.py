"""
Once: a dependency of FastAPI whose route is executed once, in the ledger's own transaction.

    once = Once(project="shop", connection=session, actor=user_id)
    router = APIRouter(route_class=OnceRoute)

    @router.post("/payments", status_code=201)
    async def pay(payment: Payment, op: Annotated[Operation, Depends(once)]) -> Receipt: ...

The dependency says who asks and on which connection; the route does the rest, since it alone
stands where it must: behind every dependency and the validation, so that who may not ask gets no
replay and what is malformed no row; and before the answer is sent, so that it is not sent before
the commit. A dependency by itself is told neither when the one nor when the other happens.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Unpack

from fastapi import Depends
from starlette.requests import Request

from semel.db.transact import is_async
from semel.edges.frameworks.asgi import lines_of, path_of
from semel.edges.frameworks.taken import Taken
from semel.edges.frameworks.work import Work
from semel.edges.once import Once as Block
from semel.edges.rest import key
from semel.edges.rest.asked import Asked
from semel.edges.rest.rules import Options, Rules
from semel.errors import BadConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from semel.edges.operation import Operation

#: In a request's scope: what its route is to execute, and its body, read before.
WORK, BODY = "semel.work", "semel.body"


class Once:
    """
    A dependency: the operation of a request, see the module.

    Args:
        project: The ledger.
        connection: A dependency: the connection or session that the handler writes with.
        actor: A dependency: the id of who asks, or None.
        rules: See `semel.edges.rest.rules.Rules`; a key is required by default.

    Raises:
        BadConfig: an impossible rule.
    """

    def __init__(
        self,
        *,
        project: str,
        connection: Callable[..., Any],
        actor: Callable[..., Any],
        **rules: Unpack[Options],
    ) -> None:
        rules.setdefault("require_key", True)
        self.rules = Rules(project=project, **rules)
        # The actor first: who may not ask takes no connection.
        asks = {"request": Request, "actor": Depends(actor), "connection": Depends(connection)}
        self.__signature__ = inspect.Signature(
            [
                inspect.Parameter(
                    name,
                    inspect.Parameter.KEYWORD_ONLY,
                    annotation=asked if asked is Request else Any,
                    default=inspect.Parameter.empty if asked is Request else asked,
                )
                for name, asked in asks.items()
            ]
        )

    # FastAPI calls it with what the signature above asks for.
    async def __call__(self, *, request: Request, actor: Any, connection: Any) -> Operation:
        """
        The operation, which begins when all that the handler depends on is there.

        Raises:
            BadConfig: its route is no OnceRoute, or the request is claimed already.
        """
        if not getattr(request.scope.get("route"), "commits_before_it_answers", False):
            raise BadConfig(
                "Once needs routes that answer after their commit: give the router, or"
                " app.router, route_class=semel.fastapi.OnceRoute"
            )
        around = request.scope.get("state", {}).get("semel")
        if isinstance(around, Taken) and around.claims:
            raise BadConfig(
                "this route is behind semel.asgi.Idempotency, which has claimed its request:"
                " leave the route to one of the two"
            )
        asked = Asked(
            method=request.method,
            path=path_of(request.scope),
            query=request.scope.get("query_string", b"").decode("latin-1"),
            headers=lines_of(request.scope),
            body=request.scope.get(BODY, b""),
            params={name: str(value) for name, value in request.path_params.items()},
        )
        found = key.find(self.rules, request.method, asked.headers)
        block = Block(connection, **self.rules.once(asked, actor, found))
        request.scope[WORK] = Work(self.rules, block, awaited=is_async(connection))
        return block.operation
