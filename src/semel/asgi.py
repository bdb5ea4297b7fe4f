"""
Operations behind any ASGI application: Starlette, FastAPI, or one of your own.

    app.add_middleware(Idempotency, pool=pool, project="shop", actor=lambda r: r.user.id)

A POST or PATCH with an `Idempotency-Key` is executed once. Needs the extra `asgi`.
"""

try:
    import starlette as _starlette
except ImportError as missing:
    raise ImportError(f"{missing}: pip install 'semel[asgi]'") from missing

from semel.edges.frameworks.asgi import Idempotency

del _starlette

__all__ = ["Idempotency"]
