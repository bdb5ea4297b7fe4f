"""
Operations behind any ASGI application: Starlette, FastAPI, or one of your own.

    app.add_middleware(Idempotency, pool=pool, project="shop", actor=lambda r: r.user.id)

A POST or PATCH with an `Idempotency-Key` is executed once. Needs Starlette.
"""

from semel.edges.frameworks.asgi import Idempotency

__all__ = ["Idempotency"]
