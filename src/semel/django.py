"""
Operations of Django: a decorator of views, and middleware for all of them.

    @login_required
    @once(project="shop", actor=lambda request: request.user.pk)
    def pay(request): ...

Needs the extra `django`.
"""

try:
    import django as _django
except ImportError as missing:
    raise ImportError(f"{missing}: pip install 'semel[django]'") from missing

from semel.edges.frameworks.django import once
from semel.edges.frameworks.django_middleware import IdempotencyMiddleware
from semel.edges.operation import Operation

del _django

__all__ = ["IdempotencyMiddleware", "Operation", "once"]
