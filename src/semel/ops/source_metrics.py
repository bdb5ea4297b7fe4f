"""
Source metrics: which secret a sender uses, and how long a source is silent.

A secret is named by its place in the settings, from 1, never by what it is. How long a source is
silent is what the database knows, over all ingresses; which secrets are used is of this process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client import CollectorRegistry

    from semel.config import Source
    from semel.core.sources import Silence


class SourceMetrics:
    """Those of the *sources* that one process serves."""

    def __init__(self, sources: Iterable[Source], registry: CollectorRegistry) -> None:
        there = list(sources)
        self.names = [source.name for source in there]
        self._there = {(source.project, source.name) for source in there}
        self._secrets = Counter(
            "semel_source_secret",
            "Authentic requests, by the place of the secret that proved them; 1 is the first.",
            ["source", "secret"],
            registry=registry,
        )
        self._proofs: dict[tuple[str, int], Counter] = {
            (source.name, nth): self._secrets.labels(source.name, str(nth))
            for source in there
            for nth in range(1, len(source.secrets) + 1)
        }
        self._silent = Gauge(
            "semel_source_silent_seconds",
            "Since the last authentic request to a source, of whichever ingress; since it was"
            " first announced, where none ever came.",
            ["source"],
            registry=registry,
        )
        limit = Gauge(
            "semel_source_silent_after_seconds",
            "What the source's silent_after is; absent where there is none.",
            ["source"],
            registry=registry,
        )
        for source in there:
            if source.silent_after is not None:
                limit.labels(source.name).set(source.silent_after.total_seconds())

    def observe_secret(self, source: Source, nth: int) -> None:
        """Count one request to *source* that its secret in place *nth* proved."""
        self._proofs[source.name, nth].inc()

    def show(self, silences: Iterable[Silence]) -> None:
        """Show *silences*, those of our sources, and no others."""
        self._silent.clear()
        for one in silences:
            if (one.project, one.source) in self._there:
                self._silent.labels(one.source).set(one.age.total_seconds())
