"""`EpochCoordinator`: the common part of the heartbeats of members of consumer, share and streams groups.

Follows Kafka's `GroupMetadataManager`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from klamm import ErrorCode, KafkaError
from klamm_broker.broker_settings import BrokerSettings
from klamm_broker.groups.epoch_group import JOIN_EPOCH, EpochGroup, MemberT
from klamm_broker.groups.group import Group
from klamm_broker.groups.group_registry import GroupRegistry
from klamm_broker.groups.member_timers import GroupT, MemberTimers

NOT_WRITTEN: Final = ErrorCode.NOT_COORDINATOR
"""The error if a change could not be written. The client then finds the coordinator again and retries."""


class EpochHeartbeat(Protocol):
    """A heartbeat. Epoch 0 joins, -1 leaves, and with -2 a static member leaves temporarily."""

    @property
    def group_id(self) -> str: ...
    @property
    def member_id(self) -> str: ...
    @property
    def epoch(self) -> int: ...
    @property
    def owner(self) -> str: ...


TargetT = TypeVar("TargetT")
RequestT = TypeVar("RequestT", bound=EpochHeartbeat)
ResultT = TypeVar("ResultT")


class DescribedEpochGroup(NamedTuple, Generic[MemberT, TargetT]):
    """A group as an administrator sees it. `target` is the target assignment by member id, for members that have
    one.
    """

    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: Sequence[MemberT]
    target: Mapping[str, TargetT]


class EpochCoordinator(ABC, Generic[GroupT, RequestT, ResultT]):
    """The coordinator of groups of one type. `GroupCoordinator` makes one for each type.

    Handlers call `heartbeat`. Their APIs are `blocking`, because a heartbeat may compute an assignment. Timers of
    members run on the scheduler's thread. Any thread may call any public method; a group's lock guards its state. A
    "held" group is one whose lock the caller holds.
    """

    group_class: type[GroupT]

    def __init__(self, settings: BrokerSettings, registry: GroupRegistry, timers: MemberTimers[GroupT]) -> None:
        self._settings = settings
        self._registry = registry
        self._timers = timers

    @abstractmethod
    def start(self, group: GroupT) -> None:
        """Start the timers of a loaded group's members."""

    def stop(self, group: GroupT) -> None:
        """End the timers."""
        with group:
            group.die()

    # Heartbeat

    def heartbeat(self, request: RequestT, reply: Callable[[ResultT], None]) -> None:
        """Join, stay in, or leave a group. `reply` is called at once, or when the change is durable."""
        try:
            request = self._checked(request)
            found = self._group_of(request)
            with found:
                if found.is_dead:
                    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
                group = found if isinstance(found, self.group_class) else self._taken_over(found, request)
                serve = self._leave if request.epoch < JOIN_EPOCH else self._beat
                result = serve(group, request)

                def answer(is_written: bool) -> None:
                    reply(result if is_written else self._failed(NOT_WRITTEN, None))

                self._timers.write(group, answer)
        except KafkaError as error:
            reply(self._failed(ErrorCode(error.error_code), error.message))

    def _group_of(self, request: RequestT) -> Group:
        """Return the group, of any type; create one if the member joins a group that does not exist."""
        if request.epoch == JOIN_EPOCH:
            return self._registry.get_or_make(
                request.group_id, request.owner, self.group_class, lambda new: self._admit(new, request)
            )
        kind = "Group" if request.epoch < JOIN_EPOCH else f"{self.group_class.group_type.capitalize()} group"
        return self._existing(request.group_id, kind)

    def _existing(self, group_id: str, kind: str = "Group") -> Group:
        found = self._registry.get(group_id)
        if found is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"{kind} {group_id} not found.")
        return found

    def _other_type(self, group_id: str) -> KafkaError:
        kind = self.group_class.group_type
        return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a {kind} group.")

    @abstractmethod
    def _failed(self, code: ErrorCode, message: str | None) -> ResultT:
        """Return the answer to a refused heartbeat."""

    @abstractmethod
    def _checked(self, request: RequestT) -> RequestT:
        """Return the request, with a member id. Raises KafkaError for a request that no group can serve."""

    @abstractmethod
    def _admit(self, group: GroupT, request: RequestT) -> None:
        """Raise KafkaError if there is no room for the first member of a new group."""

    def _taken_over(self, group: Group, request: RequestT) -> GroupT:
        """Replace a held group of another type. Raises KafkaError(GROUP_ID_NOT_FOUND) if it cannot be replaced."""
        raise self._other_type(request.group_id)

    @abstractmethod
    def _beat(self, group: GroupT, request: RequestT) -> ResultT:
        """Join or stay in a held group. Raises KafkaError."""

    @abstractmethod
    def _leave(self, group: GroupT, request: RequestT) -> ResultT:
        """Leave a held group. Raises KafkaError."""

    # Describe

    def get(self, group_id: str) -> GroupT:
        """Return the group. Raises KafkaError(GROUP_ID_NOT_FOUND)."""
        return self._of_type(self._existing(group_id))

    def _of_type(self, group: Group) -> GroupT:
        if not isinstance(group, self.group_class):
            raise self._other_type(group.group_id)
        return group


def described(
    group: EpochGroup[MemberT], assignor: str, target: Mapping[str, TargetT]
) -> DescribedEpochGroup[MemberT, TargetT]:
    """Describe a held group."""
    members = tuple(group.members.values())
    return DescribedEpochGroup(
        group.group_id, group.state_name, group.epoch, group.assignment_epoch, assignor, members, dict(target)
    )


def invalid(message: str) -> KafkaError:
    """Return the error for a heartbeat that no group can serve."""
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
