"""
Semel: work that happens exactly once and survives crashes, on PostgreSQL.

What a program imports; the rest of the package is public under its own path.
"""

from semel.errors import SemelError
from semel.runtime.app import App
from semel.runtime.handlers import Backoff, Run
from semel.runtime.start import start

__all__ = ["App", "Backoff", "Run", "SemelError", "start"]
