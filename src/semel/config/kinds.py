"""
Kinds: the event types that a channel is known to tell, and what looks like none of them.

A provider adds types whenever it likes, so one that is not known here is worth a warning and no
refusal. A channel that is not listed names its types itself.

Source: Bot API, Update; Messaging API, webhook event objects; Discord, interaction types and
webhook event types; GitHub, "Webhook events and payloads"; go-gitea/gitea,
modules/webhook/type.go, Event.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from semel.config.routing import pattern

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semel.config.settings import Source

KINDS: Mapping[str, frozenset[str]] = {
    "alertmanager": frozenset({"firing", "resolved"}),
    "discord": frozenset(
        [
            "APPLICATION_COMMAND",
            "MESSAGE_COMPONENT",
            "MODAL_SUBMIT",
            "APPLICATION_AUTHORIZED",
            "APPLICATION_DEAUTHORIZED",
            "ENTITLEMENT_CREATE",
            "ENTITLEMENT_UPDATE",
            "ENTITLEMENT_DELETE",
            "QUEST_USER_ENROLLMENT",
            "LOBBY_MESSAGE_CREATE",
            "LOBBY_MESSAGE_UPDATE",
            "LOBBY_MESSAGE_DELETE",
            "GAME_DIRECT_MESSAGE_CREATE",
            "GAME_DIRECT_MESSAGE_UPDATE",
            "GAME_DIRECT_MESSAGE_DELETE",
        ]
    ),
    "gitea": frozenset(
        [
            "create",
            "delete",
            "fork",
            "push",
            "issues",
            "issue_comment",
            "pull_request",
            "pull_request_comment",
            "pull_request_approved",
            "pull_request_rejected",
            "pull_request_review_approved",
            "pull_request_review_rejected",
            "pull_request_review_comment",
            "wiki",
            "repository",
            "release",
            "package",
            "status",
            "workflow_run",
            "workflow_job",
            "action_run_failure",
            "action_run_recover",
            "action_run_success",
        ]
    ),
    "github": frozenset(
        [
            "branch_protection_configuration",
            "branch_protection_rule",
            "check_run",
            "check_suite",
            "code_scanning_alert",
            "commit_comment",
            "create",
            "custom_property",
            "custom_property_values",
            "delete",
            "dependabot_alert",
            "deploy_key",
            "deployment",
            "deployment_protection_rule",
            "deployment_review",
            "deployment_status",
            "discussion",
            "discussion_comment",
            "fork",
            "github_app_authorization",
            "gollum",
            "installation",
            "installation_repositories",
            "installation_target",
            "issue_comment",
            "issue_dependencies",
            "issues",
            "label",
            "marketplace_purchase",
            "member",
            "membership",
            "merge_group",
            "meta",
            "milestone",
            "org_block",
            "organization",
            "package",
            "page_build",
            "personal_access_token_request",
            "ping",
            "project",
            "project_card",
            "project_column",
            "projects_v2",
            "projects_v2_item",
            "projects_v2_status_update",
            "public",
            "pull_request",
            "pull_request_review",
            "pull_request_review_comment",
            "pull_request_review_thread",
            "push",
            "registry_package",
            "release",
            "repository",
            "repository_advisory",
            "repository_dispatch",
            "repository_import",
            "repository_ruleset",
            "repository_vulnerability_alert",
            "secret_scanning_alert",
            "secret_scanning_alert_location",
            "secret_scanning_scan",
            "security_advisory",
            "security_and_analysis",
            "sponsorship",
            "star",
            "status",
            "sub_issues",
            "team",
            "team_add",
            "watch",
            "workflow_dispatch",
            "workflow_job",
            "workflow_run",
        ]
    ),
    "line": frozenset(
        [
            "message",
            "unsend",
            "follow",
            "unfollow",
            "join",
            "leave",
            "memberJoined",
            "memberLeft",
            "postback",
            "videoPlayComplete",
            "beacon",
            "accountLink",
            "things",
            "membership",
            "module",
            "activated",
            "deactivated",
            "botSuspended",
            "botResumed",
            "delivery",
        ]
    ),
    "telegram": frozenset(
        [
            "message",
            "edited_message",
            "channel_post",
            "edited_channel_post",
            "business_connection",
            "business_message",
            "edited_business_message",
            "deleted_business_messages",
            "message_reaction",
            "message_reaction_count",
            "inline_query",
            "chosen_inline_result",
            "callback_query",
            "shipping_query",
            "pre_checkout_query",
            "purchased_paid_media",
            "poll",
            "poll_answer",
            "my_chat_member",
            "chat_member",
            "chat_join_request",
            "chat_boost",
            "removed_chat_boost",
        ]
    ),
}


def doubts(source: Source) -> list[str]:
    """The event types in the settings of *source* that its channel is not known to tell."""
    there = KINDS.get(source.channel.removesuffix("-poll"))
    if there is None:
        return []
    found = []
    for told in (*source.events, *(each for route in source.route for each in route.events)):
        if not any(pattern(told).fullmatch(kind) for kind in there):
            near = difflib.get_close_matches(told, there, 1)
            found.append(f"{told!r}" + (f" (did you mean {near[0]!r}?)" if near else ""))
    return found
