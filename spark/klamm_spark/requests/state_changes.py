"""`STATE_CHANGES`: the descriptions of all state changes, by API. They return resources with the results of the
request.

`python -m klamm_spark.requests.state_changes` prints the table in docs/audit/reference.md. Descriptions have no
secrets: only a hash of a delegation token's HMAC, nothing of a password, and no value of a sensitive configuration.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from klamm import RequestEvent
from klamm.wire.api_keys import ApiKey, spec_of
from klamm.wire.response_errors import named_errors
from klamm_spark.requests.admin_changes import ADMIN_CHANGES
from klamm_spark.requests.change_parts import StateChange, StateChanges, add_changed_values
from klamm_spark.requests.group_changes import GROUP_CHANGES
from klamm_spark.requests.resources import AUTHORIZATION_ERRORS, Resource, Summary, TopicNames, add_decisions

log = logging.getLogger("klamm.audit")

_K = ApiKey

# Changes that the servers of a cluster request from each other. klamm does not serve these APIs.
_SERVER_CHANGES: Final = StateChanges()
_SERVER_CHANGES.read(
    *(_K.CONTROLLED_SHUTDOWN, _K.ALTER_PARTITION, _K.BROKER_REGISTRATION, _K.ALLOCATE_PRODUCER_IDS),
    _K.ASSIGN_REPLICAS_TO_DIRS,
    rows=["BROKER broker_id"],
)
_SERVER_CHANGES.read(_K.ADD_RAFT_VOTER, _K.REMOVE_RAFT_VOTER, _K.UPDATE_RAFT_VOTER, rows=["VOTER voter_id"])
_SERVER_CHANGES.read(
    *(_K.LEADER_AND_ISR, _K.STOP_REPLICA, _K.UPDATE_METADATA, _K.VOTE, _K.BEGIN_QUORUM_EPOCH, _K.END_QUORUM_EPOCH),
    *(_K.ENVELOPE, _K.CONTROLLER_REGISTRATION),
    rows=["CLUSTER"],
)
STATE_CHANGES: Final[dict[ApiKey, StateChange]] = {**ADMIN_CHANGES, **GROUP_CHANGES, **_SERVER_CHANGES}
"""Every API that may change state. The observer never aggregates or excludes a request that changes state."""
CHANGING: Final = frozenset(map(int, STATE_CHANGES))
ADMINISTRATIVE: Final = frozenset(map(int, ADMIN_CHANGES))
"""The APIs of changes that people and tools make, rarely. The other changes come from running clients and servers."""
_MEMBERSHIP: Final = frozenset({_K.CONSUMER_GROUP_HEARTBEAT, _K.SHARE_GROUP_HEARTBEAT, _K.STREAMS_GROUP_HEARTBEAT})
"""Heartbeats that join, leave or change a subscription are changes. Other heartbeats are reads."""
_SUBSCRIPTION: Final = ("subscribed_topic_names", "subscribed_topic_regex", "topology")


def is_change(api_key: int, message: Any) -> bool:
    """Return True if a request is a state change, or may be one: `message` is None if its body was not read."""
    if api_key not in _MEMBERSHIP or message is None:
        return api_key in CHANGING
    return message.member_epoch <= 0 or any(getattr(message, field, None) is not None for field in _SUBSCRIPTION)


def summarize_change(event: RequestEvent, topics: TopicNames) -> Summary:
    """Return the summary of a state change, with all resources in the order of the request."""
    error_code = event.error_code
    errors = named_errors(event.response, topics.name) if error_code else {}
    resources: list[Resource] = []
    if event.request is not None:
        resources = described(event.context.api_key, event.request, event.response, topics)
    if event.context.changed_values:
        add_changed_values(event.context.changed_values, resources)
    named: dict[tuple[str, str], Resource] = {}
    for resource in resources:
        named.setdefault((resource.type, resource.name), resource)
        resource.error_code = resource.error_code or errors.get(resource.name, 0)
    known = len(named)
    denied = add_decisions(event, named) if event.context.decisions else False
    resources += list(named.values())[known:]
    denied = (denied and bool(error_code)) or error_code in AUTHORIZATION_ERRORS
    denied = denied or not AUTHORIZATION_ERRORS.isdisjoint(errors.values())
    return Summary(error_code, denied, resources, len(resources))


def described(api_key: int, request: Any, response: Any, topics: TopicNames) -> list[Resource]:
    """Return the resources of a state change, in the order of the request. A resource may occur several times.

    The list is empty if a plugin's message does not have the fields of its API.
    """
    try:
        return list(STATE_CHANGES[ApiKey(api_key)].describe(request, response, topics))
    except (AttributeError, KeyError, TypeError, ValueError):
        log.exception("audit: a request of API %d cannot be described", api_key)
        return []


def markdown_table() -> str:
    """Return the table for docs/audit/reference.md."""
    lines = ["| API | resources | attributes |", "| --- | --- | --- |"]
    for api_key, change in STATE_CHANGES.items():
        types, attributes = (", ".join(f"`{name}`" for name in names) for names in (change.types, change.attributes))
        lines.append(f"| {spec_of(api_key).name} | {types} | {attributes or '—'} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown_table())
