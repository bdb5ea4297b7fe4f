"""
Operations of Flask: a decorator of views.

    @app.post("/payments")
    @once(project="shop", connection=lambda: db.session, actor=lambda: current_user.id)
    def pay(): ...

Needs the extra `flask`.
"""

try:
    import flask as _flask
except ImportError as missing:
    raise ImportError(f"{missing}: pip install 'semel[flask]'") from missing

from semel.edges.frameworks.flask import once
from semel.edges.operation import Operation

del _flask

__all__ = ["Operation", "once"]
