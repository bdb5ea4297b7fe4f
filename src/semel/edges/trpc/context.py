"""What a procedure is handed: the request, whose it is, and for a mutation its open operation."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from semel.errors import BadConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractAsyncContextManager


@dataclass(frozen=True, slots=True)
class Request:
    """
    An HTTP request, as the context function gets it.

    Attributes:
        method: In capitals.
        path: Of the procedures, without the place where the router is mounted.
        query: The first value of each name.
        lines: Header lines in their order, names in lower case.
        scope: ASGI's.
    """

    method: str
    path: str
    query: Mapping[str, str]
    lines: tuple[tuple[str, str], ...]
    scope: Mapping[str, Any] = field(repr=False)

    @property
    def headers(self) -> dict[str, str]:
        """The headers, lines of one name joined by a comma."""
        joined: dict[str, str] = {}
        for name, value in self.lines:
            joined[name] = f"{joined[name]}, {value}" if name in joined else value
        return joined


@dataclass(frozen=True, slots=True)
class Context:
    """
    The first argument of a procedure; `ctx["name"]` is what the context function said.

    Attributes:
        request: The HTTP request; a batch has one for all its calls.
        path: The procedure's, such as "acct.deposit".
        values: What the context function returned.
        has_input: False where the client sent none, which the handler sees as None too.
        op: A mutation's open operation, with `journal` and `start`; None in a query. Without a
            key it is a plain transaction, of which the ledger keeps nothing.
        conn: A mutation's connection, inside its transaction.
    """

    request: Request
    path: str
    values: Mapping[str, Any]
    has_input: bool = False
    op: Any = None
    conn: Any = None
    lend: Callable[[], AbstractAsyncContextManager[Any]] | None = field(
        default=None, repr=False
    )

    @property
    def actor(self) -> str | None:
        """Who asks, as text; None is nobody that is known."""
        actor = self.values.get("actor")
        return None if actor is None else str(actor)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def connect(self) -> AbstractAsyncContextManager[Any]:
        """
        Borrow a connection of the router's pool, for a query: `async with ctx.connect() as conn`.

        Raises:
            BadConfig: the router has none.
        """
        if self.lend is None:
            raise BadConfig("the router has no pool: Router(pool, ...)")
        return self.lend()

    def open(self, op: Any, conn: Any) -> Context:
        """This context inside the transaction of *op* on *conn*."""
        return replace(self, op=op, conn=conn)
