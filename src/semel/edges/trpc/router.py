"""The router: procedures under their paths, and the application that serves them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from semel.edges.rest.rules import Rules
from semel.edges.trpc import lend
from semel.edges.trpc.answers import Writer
from semel.edges.trpc.application import Application
from semel.edges.trpc.execution import Execution
from semel.edges.trpc.ledger import Ledger
from semel.edges.trpc.procedures import Kind, Procedure
from semel.edges.trpc.superjson import SuperJSON
from semel.edges.trpc.transformer import Plain
from semel.edges.trpc.wire import Wire
from semel.errors import BadConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from semel.edges.trpc.context import Request
    from semel.edges.trpc.keys import Rule
    from semel.edges.trpc.transformer import Transformer
    from semel.edges.trpc.wire import Version

F = TypeVar("F", bound="Callable[..., Any]")

_PATH = re.compile(r"[A-Za-z0-9_$-]+(\.[A-Za-z0-9_$-]+)*")


class Router:
    """
    Procedures for @trpc/client 11 and 10; mutations with a key execute once.

    Args:
        pool: Lends a connection for each mutation: an AsyncConnectionPool of psycopg_pool, a pool
            of asyncpg, an async_sessionmaker of SQLAlchemy, or a function that returns an async
            context manager of a connection. A router that is only included needs none.
        project: Of the ledger.
        context: Called with each request; what it returns is `ctx["…"]`, its "actor" whose keys
            they are. It refuses by raising TRPCError, before anything is replayed.
        authorize: Called with (ctx, input) before a procedure is executed or replayed.
        transformer: "superjson" where the client has it, else None.
        keys: "call", a key for each call, or "indexed", the rule of older systems.
        strict: With "indexed": refuse a batch whose calls a retry could regroup.
        version: 10 answers requests that no client sends as @trpc/server 10 does.
        batching, batch_max, method_override, separator: See `wire.Wire`.
        stacks: Errors carry their stack; for development.
        rules: As `edges.rest.rules.Rules`: require_key, anonymous, body_bytes_max,
            answer_bytes_max, wait, keys (for digests, as `digest_keys`), store, seal.

    Raises:
        BadConfig: a rule that cannot be kept.
    """

    def __init__(
        self,
        pool: Any = None,
        *,
        project: str = "default",
        context: Callable[[Request], Any] | None = None,
        authorize: Callable[..., Any] | None = None,
        transformer: Literal["superjson"] | Transformer | None = None,
        keys: Rule = "call",
        strict: bool = False,
        version: Version = 11,
        batching: bool = True,
        batch_max: int = 100,
        method_override: bool = False,
        separator: str = ".",
        stacks: bool = False,
        digest_keys: Any = (),
        **rules: Any,
    ) -> None:
        if keys not in {"call", "indexed"}:
            raise BadConfig(f"keys={keys!r}: it is 'call' or 'indexed'")
        self.procedures: dict[str, Procedure] = {}
        self._pool = pool
        self._rules = Rules(project=project, keys=digest_keys, **rules)
        self._context = context
        self._authorize = authorize
        self._transformer = _transformer(transformer)
        self._keys = keys
        self._strict = strict
        self._stacks = stacks
        self._wire = Wire(
            version=version,
            batching=batching,
            batch_max=batch_max,
            method_override=method_override,
            separator=separator,
        )

    def query(self, path: str, **options: Any) -> Callable[[F], F]:
        """
        Register a query under *path*.

        Args:
            path: Names parted by dots, as the client calls it: `acct.balance`.
            options: input=, the parser, and authorize=, instead of the router's.
        """
        return self._register("query", path, options)

    def mutation(self, path: str, **options: Any) -> Callable[[F], F]:
        """
        Register a mutation under *path*: with a key it executes once.

        Args:
            path: As of a query.
            options: As of a query, and require_key=, instead of the router's.
        """
        return self._register("mutation", path, options)

    def include(self, prefix: str, other: Router) -> None:
        """Add the procedures of *other* under *prefix* and a dot; its own settings do not count."""
        for path, procedure in other.procedures.items():
            mine = replace(procedure, authorize=procedure.authorize or other._authorize)
            self._add(f"{prefix}.{path}" if prefix else path, mine)

    def asgi(self, prefix: str = "") -> Application:
        """
        The application that serves what is registered until now.

        Args:
            prefix: The path it is under, where no framework mounts it.
        """
        writer = Writer(self._transformer, self._stacks)
        execution = Execution(
            wire=self._wire,
            writer=writer,
            ledger=Ledger(self._pool, self._rules, self._transformer),
            rules=self._rules,
            rule=self._keys,
            strict=self._strict,
            at_once=max(1, lend.size(self._pool) // 2),
        )
        procedures = {
            path: replace(procedure, authorize=procedure.authorize or self._authorize)
            for path, procedure in self.procedures.items()
        }
        return Application(procedures, execution, self._context, prefix)

    def _register(self, kind: Kind, path: str, options: dict[str, Any]) -> Callable[[F], F]:
        def register(handler: F) -> F:
            made = Procedure(kind, handler, options.pop("input", None), **options)
            self._add(path, made)
            return handler

        return register

    def _add(self, path: str, procedure: Procedure) -> None:
        if not _PATH.fullmatch(path):
            raise BadConfig(f"{path!r} is no procedure's path: names of A-Z, a-z, 0-9, _, $, -")
        if path in self.procedures:
            raise BadConfig(f"there is a procedure {path} already")
        self.procedures[path] = procedure


def _transformer(told: Any) -> Transformer:
    if told is None:
        return Plain()
    if told == "superjson":
        return SuperJSON()
    if hasattr(told, "load") and hasattr(told, "dump"):
        transformer: Transformer = told
        return transformer
    raise BadConfig(f"transformer={told!r}: it is 'superjson', a Transformer, or None")
