"""
Semel: work that happens exactly once and survives crashes, on PostgreSQL.

What a program imports; the rest of the package is public under its own path.
"""

from semel.errors import DoNotRetry, SemelError
from semel.runtime.app import App
from semel.runtime.handlers import Backoff, Run
from semel.runtime.start import start, wake

__all__ = ["App", "Backoff", "DoNotRetry", "Run", "SemelError", "start", "wake"]
