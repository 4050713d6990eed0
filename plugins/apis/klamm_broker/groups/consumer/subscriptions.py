"""The topics to which the members of a group subscribe, and their partitions.

Regular expressions run in RE2, whose matching time is linear in the text, within the limits of `compile_re2`. So no
client can slow down the server with an expression. The engine is imported with the first expression.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, Protocol

from klamm import ErrorCode, KafkaError, clipped
from klamm.shared import compile_re2
from klamm_broker.groups.consumer.group import ConsumerGroup, ResolvedRegex
from klamm_broker.groups.consumer.member import ConsumerMember
from klamm_broker.limits.ledger import UNKNOWN_OWNER
from klamm_broker.topics.names import MAX_LENGTH

UNCHECKED: Final = -1
"""The generation of an expression that was resolved without a check of permissions. The next pass resolves it again."""


class TopicView(Protocol):
    """The facts about a topic that groups use."""

    @property
    def name(self) -> str: ...
    @property
    def id(self) -> bytes: ...
    @property
    def partitions(self) -> Sequence[Any]: ...


class Topics(Protocol):
    """The topics of a broker. `generation` rises with each change."""

    @property
    def generation(self) -> int: ...
    def get(self, name: str, /) -> TopicView | None: ...
    def by_id(self, topic_id: bytes, /) -> TopicView | None: ...
    def all(self) -> Sequence[TopicView]: ...


def require_topic_names(names: Iterable[str] | None) -> None:
    """Raise KafkaError(INVALID_REQUEST) for a name that is too long for a topic."""
    for name in names or ():
        if len(name) > MAX_LENGTH:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"SubscribedTopicNames has a name of more than {MAX_LENGTH} characters."
            )


def check_regex(pattern: str) -> None:
    """Raise KafkaError(INVALID_REGULAR_EXPRESSION) for an expression that RE2 does not accept."""
    _compile(pattern)


def matching_topics(pattern: str, names: Iterable[str], may_describe: Callable[[str], bool]) -> frozenset[str]:
    """Return the names that match as a whole and that the member may describe. Raises KafkaError like `check_regex`."""
    fullmatch = _compile(pattern).fullmatch
    return frozenset(name for name in names if fullmatch(name) and may_describe(name))


def _compile(pattern: str) -> Any:
    try:
        return compile_re2(pattern)
    except ValueError as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{clipped(pattern)}` is not a valid regular expression: {error}.",
        ) from error


def topics_of(group: ConsumerGroup, member: ConsumerMember) -> frozenset[str]:
    """Return the names of all topics that a member subscribes to, existing or not."""
    return _topics_of(group, member.topics, member.regex)


def _topics_of(group: ConsumerGroup, topics: frozenset[str], regex: str) -> frozenset[str]:
    resolved = group.regexes.get(regex) if regex else None
    return topics if resolved is None else topics | resolved.topics


class RegexRefresh(NamedTuple):
    """Times after which regular expressions are resolved again.

    `max_age_ns` is the age after which an expression is resolved again although no topic has changed, because
    permissions may have changed. `budget_ns` is the time after which a pass leaves the remaining expressions to a later
    pass, because it holds the group's lock. After an incomplete pass, the next one waits `pause` times as long as the
    pass took.
    """

    max_age_ns: int
    budget_ns: int = 50_000_000
    pause: int = 10


def resolve_regexes(
    group: ConsumerGroup,
    topics: Topics,
    may_describe: Callable[[str], bool],
    now_ns: Callable[[], int],
    refresh: RegexRefresh,
) -> bool:
    """Resolve the members' new expressions, and those that were resolved before the topics changed or too long ago.

    `now_ns` is monotonic. If a pass takes too long, the expressions that are not new wait for a later pass. Return True
    if a member's topics have changed.
    """
    if not group.patterns and not group.regexes:
        return False
    began_ns = now_ns()
    generation = topics.generation
    changed = False
    names: list[str] | None = None
    owners: dict[str, str] = {}
    may_describe = cache(may_describe)
    resolved: dict[str, ResolvedRegex] = {}
    is_due = began_ns >= group.regexes_due_ns
    for pattern in group.patterns:
        known = group.regexes.get(pattern)
        is_new = known is None or known.generation == UNCHECKED
        if known is None or is_new or (is_due and _is_old(known, generation, began_ns - refresh.max_age_ns)):
            if names is None:
                names = [topic.name for topic in topics.all()]
                owners = {member.regex: member.owner for member in group.members.values()}
            found = matching_topics(pattern, names, may_describe)
            changed = changed or known is None or known.topics != found
            known = ResolvedRegex(found, generation, began_ns, owners.get(pattern, UNKNOWN_OWNER))
            took_ns = now_ns() - began_ns
            if is_due and took_ns >= refresh.budget_ns:
                is_due = False
                group.regexes_due_ns = began_ns + took_ns * refresh.pause
        resolved[pattern] = known
    group.take_regexes(resolved)
    return changed


def _is_old(known: ResolvedRegex, generation: int, since_ns: int) -> bool:
    return known.generation != generation or known.at_ns <= since_ns


def refresh_metadata(group: ConsumerGroup, topics: Topics) -> bool:
    """Look up the topics that the group reads. Return True if these topics, their ids or their numbers of partitions
    have changed. Topics that do not exist are not counted.
    """
    generation = topics.generation
    names: frozenset[str] = frozenset().union(*(_topics_of(group, *each) for each in group.subscriptions))
    if names == group.subscribed_topics and generation == group.metadata_generation:
        # Without this check, each of many leaving members would cause a new digest, although others read the same
        # topics.
        return False
    group.subscribed_topics = names
    digest = topics_hash(group.subscribed_topics, topics)
    group.metadata_generation = generation
    if digest == group.metadata_hash:
        return False
    group.metadata_hash = digest
    group.changes.group = True
    return True


def topics_hash(names: Iterable[str], topics: Topics) -> str:
    """Return a digest of ids and partition counts of the existing topics."""
    found = (topic for name in names if (topic := topics.get(name)) is not None)
    return _hash((topic.name, topic.id, len(topic.partitions)) for topic in found)


def _hash(topics: Iterable[tuple[str, bytes, int]]) -> str:
    import hashlib

    digest = hashlib.blake2b(digest_size=16)
    empty = True
    for name, topic_id, count in sorted(topics):
        empty = False
        digest.update(f"{name}\0{topic_id.hex()}\0{count}\0".encode())
    return "" if empty else digest.hexdigest()


def partition_counts(names: Iterable[str], topics: Topics) -> Mapping[bytes, int]:
    """Return the partition counts of the existing topics by their ids."""
    found = (topic for name in names if (topic := topics.get(name)) is not None)
    return {topic.id: len(topic.partitions) for topic in found}
