"""Repositories: what Gitea, Forgejo and GitHub say in the payloads they share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semel.model import Json


def matter(payload: dict[str, Json]) -> str | None:
    """The issue or pull request that *payload* is about, `owner/name#12`; None: about none."""
    repository = payload.get("repository")
    name = repository.get("full_name") if isinstance(repository, dict) else None
    if not isinstance(name, str):
        return None
    for member in ("pull_request", "issue"):
        about = payload.get(member)
        number = about.get("number") if isinstance(about, dict) else None
        if isinstance(number, int):
            return f"{name}#{number}"
    return None
