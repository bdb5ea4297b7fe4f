"""
Channels: one module for each kind of sender, each with one pure function `read`.

They know the seam in `semel.edges.channel` and nothing of one another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel.edges.channels import (
    alertmanager,
    api,
    cloudevents,
    discord,
    gitea,
    github,
    hmac,
    line,
    slack,
    standard,
    stripe,
    telegram,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semel.edges.channel import Read

#: By the channel's name in the settings.
READERS: Mapping[str, Read] = {
    "alertmanager": alertmanager.read,
    "api": api.read,
    "cloudevents": cloudevents.read,
    "discord": discord.read,
    "gitea": gitea.read,
    "github": github.read,
    "hmac": hmac.read,
    "line": line.read,
    "slack": slack.read,
    "standard": standard.read,
    "stripe": stripe.read,
    "telegram": telegram.read,
    "telegram-poll": telegram.read_polled,
}
#: What a channel takes besides POST.
METHODS: Mapping[str, frozenset[str]] = {
    "cloudevents": frozenset({"OPTIONS"}),
    "gitea": frozenset({"GET"}),
}
