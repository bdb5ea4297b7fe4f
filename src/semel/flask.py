"""
Operations of Flask: a decorator of views.

    @app.post("/payments")
    @once(project="shop", connection=lambda: db.session, actor=lambda: current_user.id)
    def pay(): ...

Needs the extra `flask`.
"""

from semel.edges.frameworks.flask import once
from semel.edges.operation import Operation

__all__ = ["Operation", "once"]
