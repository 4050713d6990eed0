"""The list of the classes whose marked methods make up the HTTP API. Add a new class of actions here."""

from __future__ import annotations

from typing import Final

from klamm_control.controlled import Actions
from klamm_control.fault_actions import FaultActions
from klamm_control.group_actions import GroupActions
from klamm_control.node_actions import NodeActions
from klamm_control.server_actions import ServerActions
from klamm_control.topic_actions import TopicActions
from klamm_control.user_actions import UserActions

ACTIONS: Final[tuple[type[Actions], ...]] = (
    ServerActions,
    TopicActions,
    GroupActions,
    FaultActions,
    NodeActions,
    UserActions,
)
