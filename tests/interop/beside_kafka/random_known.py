"""Differences that a random sequence may show: documented deviations, and answers that no real client gets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from klamm import ErrorCode
from klamm_broker.groups.streams.requests import StatusCode
from tests.interop.beside_kafka.comparison import in_order
from tests.interop.beside_kafka.random_runs import Difference
from tests.interop.beside_kafka.random_streams import ROLES
from tests.interop.beside_kafka.random_values import Made
from tests.interop.beside_kafka.random_world import PENDING

_SHUTDOWN: Final = int(StatusCode.SHUTDOWN_APPLICATION)
_UNKNOWN: Final = int(ErrorCode.UNKNOWN_SERVER_ERROR)


class Known(NamedTuple):
    """A kind of difference. `words` quotes docs/deviations.md. Without `words`, `reason` explains the difference."""

    apis: tuple[str, ...]
    holds: Callable[[Difference], bool]
    reason: str = ""
    words: str = ""


def _values(value: Any) -> Iterator[Any]:
    """Yield the value and all values within it."""
    yield value
    inner = value.fields.values() if isinstance(value, Made) else value.values() if isinstance(value, dict) else value
    if isinstance(value, (Made, dict, list)):
        for each in inner:
            yield from _values(each)


def _fails(difference: Difference) -> bool:
    """Return True if Kafka's answer is an internal error."""
    found = [each for each in _values(difference.theirs) if isinstance(each, dict)]
    return any(each.get("error_code") == _UNKNOWN for each in found)


def _gives_more(difference: Difference) -> bool:
    """Return True if klamm's answer has partitions that Kafka's does not have yet."""
    ours, theirs = (
        sum(isinstance(each, dict) and "topic_id" in each for each in _values(answer))
        for answer in (difference.ours, difference.theirs)
    )
    return ours > theirs


def _succeeds(difference: Difference) -> bool:
    """Return True if neither answer has an error."""
    found = [each for answer in (difference.ours, difference.theirs) for each in _values(answer)]
    return not any(each.get("error_code") for each in found if isinstance(each, dict))


def _has(name: str, matches: Callable[[Any], bool]) -> Callable[[Difference], bool]:
    """Return a check that is true if a struct of the request has such a value in this field."""

    def holds(difference: Difference) -> bool:
        made = (each for each in _values(difference.step.made) if isinstance(each, Made))
        return any(name in each.fields and matches(each.fields[name]) for each in made)

    return holds


def _has_error(*codes: ErrorCode) -> Callable[[Difference], bool]:
    """Return a check that is true if Kafka's answer has one of these errors."""

    def holds(difference: Difference) -> bool:
        found = (each for each in _values(difference.theirs) if isinstance(each, dict))
        return any(value in codes for each in found for name, value in each.items() if name.endswith("error_code"))

    return holds


def _places_tasks_otherwise(difference: Difference) -> bool:
    """Return True if the answers differ only in the assigned tasks, and each member has about as many."""

    def without_tasks(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: without_tasks(each) for name, each in value.items() if name not in ROLES}
        return [without_tasks(each) for each in value] if isinstance(value, list) else value

    def tasks(value: Any) -> int:
        roles = (each["active_tasks"] for each in _values(value) if isinstance(each, dict) and "active_tasks" in each)
        return sum(len(part["partitions"]) for role in roles for part in role or ())

    ours, theirs = difference.ours, difference.theirs
    return (
        bool(in_order(without_tasks(ours)) == in_order(without_tasks(theirs))) and abs(tasks(ours) - tasks(theirs)) <= 1
    )


def _is_shutting_down(difference: Difference) -> bool:
    """Return True if klamm's answer asks a member to shut the application down, and Kafka's answer differs in that."""
    ours, theirs = (
        [each for each in _values(answer) if isinstance(each, dict) and each.get("status_code") == _SHUTDOWN]
        for answer in (difference.ours, difference.theirs)
    )
    return bool(ours) and ours != theirs


def _is_refused_by_klamm(difference: Difference) -> bool:
    return bool(difference.ours["error_code"] == ErrorCode.STREAMS_INVALID_TOPOLOGY)


def _is_true(_difference: Difference) -> bool:
    return True


KNOWN: Final = (
    Known(("ShareGroupHeartbeat", "ShareGroupDescribe"), _gives_more, words="gets its partitions with its first"),
    Known(
        ("ShareGroupHeartbeat", "ShareGroupDescribe"),
        _succeeds,
        words="In Kafka they must be initialized first",
    ),
    Known(
        ("OffsetDelete", "DeleteGroups"),
        _is_true,
        "Kafka knows of a group that a refused commit has named, and does not show it",
    ),
    Known(
        ("StreamsGroupHeartbeat", "StreamsGroupDescribe"),
        _places_tasks_otherwise,
        words="If several members have equally many tasks",
    ),
    Known(
        ("StreamsGroupHeartbeat",), _is_shutting_down, words="A shutdown that the first heartbeat of a group requests"
    ),
    Known(("ConsumerGroupHeartbeat", "ConsumerGroupDescribe"), _gives_more, words="the first assignment may lack them"),
    Known(("ShareFetch", "ShareAcknowledge"), _fails, words="ShareFetch for a group that does not exist"),
    Known(("ShareFetch", "ShareAcknowledge"), _has("group_id", lambda each: not each), words="an empty group id"),
    Known(("ShareFetch", "ShareAcknowledge"), _is_true, words="A member that leaves its group releases its records"),
    Known(
        ("DescribeShareGroupOffsets",), _is_true, words="DescribeShareGroupOffsets without topics lists the partitions"
    ),
    Known(("AlterShareGroupOffsets",), _has("start_offset", lambda each: each < 0), words="a negative start offset"),
    Known(("AlterShareGroupOffsets",), _fails, "an internal error of Kafka"),
    Known(("JoinGroup",), _fails, words="Kafka throws an internal exception"),
    Known(("JoinGroup",), lambda each: PENDING in (each.ours, each.theirs), "a protocol that is named twice"),
    Known(
        ("DescribeConfigs", "CreateTopics"),
        lambda each: "min.insync.replicas" in repr(each.theirs),
        words="`min.insync.replicas` is not a dynamic default",
    ),
    Known(("DescribeConfigs",), _has("resource_type", lambda each: each == 32), words="Groups have the configs of"),
    Known(("DescribeTopicPartitions",), _has("topics", lambda each: len(each) != 1), "other runs' topics; names twice"),
    Known(("AddPartitionsToTxn",), _has("transactions", lambda each: len(each) != 1), "no transaction, or one twice"),
    Known(
        ("Produce", "TxnOffsetCommit"),
        _has_error(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        "which of several wrong things about a producer is named, and for which partitions of a request",
    ),
    Known(("TxnOffsetCommit",), _has("transactional_id", lambda each: not each), "an empty transactional id"),
    Known(("Fetch",), _has("forgotten_topics_data", bool), "a partition that is asked for and forgotten"),
)


def is_known(difference: Difference) -> bool:
    """Return True if a difference is allowed."""
    return any(difference.step.api in each.apis and each.holds(difference) for each in KNOWN)
