"""Incremental fetch sessions (KIP-227): requests and responses contain only changed partitions.

Follows Kafka's `FetchManager`, `FetchSession` and `FetchSessionCache`. A request becomes a `FetchContext`, which
determines what to read and, afterwards, which part of it goes into the response.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from klamm import ErrorCode, KafkaError
from klamm.runtime import Clock
from klamm_broker.limits.ledger import UNKNOWN_OWNER, session_ledger
from klamm_broker.numbers import INT32_MAX, NS_PER_MS
from klamm_broker.topics.names import MAX_LENGTH

if TYPE_CHECKING:
    from klamm.wire.messages.fetch import FetchPartition, FetchRequest, PartitionData
    from klamm_broker.state_limit_settings import FetchSessionSettings

NO_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_EVICTION_NS = 120_000 * NS_PER_MS
_RESCAN_NS = 1_000 * NS_PER_MS
_MOST_REFUSED = 1000

TopicKey: TypeAlias = str | bytes
"""A topic in a request: its name up to version 12, its 16-byte id from 13 on."""

Wanted: TypeAlias = "tuple[TopicKey, FetchPartition]"
Answered: TypeAlias = "tuple[TopicKey, PartitionData]"


def next_epoch(epoch: int) -> int:
    """Return the session epoch after this one; it wraps to 1, because 0 requests a new session."""
    return 1 if epoch >= INT32_MAX else epoch + 1


class CachedPartition:
    """One partition of a session: the consumer's last request for it, and the last response.

    `topics_generation` is the value of `TopicRegistry.generation` when the partition was added to the session.
    """

    __slots__ = ("high_watermark", "log_start_offset", "request", "topic", "topics_generation")

    def __init__(self, topic: TopicKey, request: FetchPartition, topics_generation: int) -> None:
        self.topic = topic
        self.topics_generation = topics_generation
        self.request = request
        self.high_watermark = -1
        self.log_start_offset = -1

    def note(self, data: PartitionData, size_bytes: int) -> bool:
        """Remember this response; return True if it differs from the last, has records, or has an error."""
        news = size_bytes > 0
        if data.high_watermark != self.high_watermark:
            self.high_watermark = data.high_watermark
            news = True
        if data.log_start_offset != self.log_start_offset:
            self.log_start_offset = data.log_start_offset
            news = True
        if data.error_code:
            self.high_watermark = -1
            news = True
        return news


class FetchSession:
    """One consumer's session. `counted` is the number of its partitions that the cache has counted.

    The cache's lock guards `last_used_ns` and `counted`; the session's own lock guards the other fields.
    """

    __slots__ = (
        "counted",
        "created_ns",
        "epoch",
        "id",
        "last_used_ns",
        "lock",
        "owner",
        "partitions",
        "uses_topic_ids",
    )

    def __init__(self, session_id: int, owner: str, uses_topic_ids: bool, now_ns: int) -> None:
        self.id = session_id
        self.owner = owner
        self.uses_topic_ids = uses_topic_ids
        self.epoch = 1
        self.created_ns = now_ns
        self.last_used_ns = now_ns
        self.counted = 0
        # Protects the session's partitions and epoch.
        self.lock = threading.Lock()
        self.partitions: OrderedDict[tuple[TopicKey, int], CachedPartition] = OrderedDict()

    def update(self, request: FetchRequest, version: int, topics_generation: int) -> None:
        """Apply added, changed and forgotten partitions.

        Raises KafkaError(INVALID_TOPIC_EXCEPTION) for an invalid topic name, because the session would keep a name of
        any length.
        """
        partitions = self.partitions
        for topic_key, wanted in wanted_partitions(request, version):
            key = (topic_key, wanted.partition)
            cached = partitions.get(key)
            if cached is None:
                if len(topic_key) > MAX_LENGTH:
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
                partitions[key] = CachedPartition(topic_key, wanted, topics_generation)
            else:
                cached.request = wanted
        for forgotten in request.forgotten_topics_data:
            topic_key = forgotten.topic_id if version >= 13 else forgotten.topic
            for index in forgotten.partitions:
                partitions.pop((topic_key, index), None)


class FetchSessionCache:
    """The sessions of a broker; the settings limit their number, and the number of all their partitions.

    In a full cache, a new session takes the slot of another: of a session that was unused for two minutes, or of a
    smaller session that has existed for two minutes. Room for partitions comes only from sessions unused for two
    minutes, because a large new session would otherwise end many others. A session that grows beyond the limit ends.
    Thread-safe.

    One owner has at most nine tenths of the slots and of the partitions. Among the sessions that may be evicted, those
    of the owner with the most sessions go first. An owner with fewer sessions than the requesting owner loses none.
    """

    def __init__(self, settings: FetchSessionSettings, clock: Clock, random_bytes: Callable[[int], bytes]) -> None:
        self.slots = session_ledger("fetch sessions", settings.max_incremental_fetch_session_cache_slots)
        self._partitions = session_ledger("partitions of fetch sessions", settings.fetch_session_max_partitions)
        self.evictions = 0
        """Number of sessions that were replaced by others."""
        self._clock = clock
        self._random_bytes = random_bytes
        # Protects the sessions and the order of last use.
        self._lock = threading.Lock()
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        # By owner: the size of a session that found no slot, and the time until which no smaller session searches for
        # one.
        self._refused: dict[str, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """The number of partitions in all sessions."""
        return self._partitions.used

    def get(self, session_id: int) -> FetchSession | None:
        """Return the session, or None."""
        return self._sessions.get(session_id)

    def size_of(self, session_id: int) -> int:
        """Return the number of partitions in the session; 0 if there is none."""
        session = self._sessions.get(session_id)
        return len(session.partitions) if session is not None else 0

    def touch(self, session: FetchSession) -> None:
        """Note that the session was used now. Raises KafkaError(FETCH_SESSION_ID_NOT_FOUND) for a session that ends
        because it is too large.
        """
        with self._lock:
            if session.id not in self._sessions:
                return
            session.last_used_ns = self._clock.monotonic_ns()
            self._sessions.move_to_end(session.id)
            grown = len(session.partitions) - session.counted
            if not grown:
                return
            has_room = grown < 0 or self._partitions.fits(session.owner, grown, in_use=True)
            session.counted += grown
            self._partitions.add(session.owner, grown)
            if has_room:
                return
            self._drop(session)
        raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def remove(self, session_id: int) -> None:
        """Forget a session, if it exists."""
        with self._lock:
            session = self._sessions.get(session_id)
            if session is not None:
                self._drop(session)

    def _drop(self, session: FetchSession) -> None:
        del self._sessions[session.id]
        self.slots.add(session.owner, -1)
        self._partitions.add(session.owner, -session.counted)

    def create(self, uses_topic_ids: bool, size: int, owner: str = UNKNOWN_OWNER) -> FetchSession | None:
        """Return a new session for `size` partitions; None if there is no room and no session can be evicted."""
        with self._lock:
            now_ns = self._clock.monotonic_ns()
            while not self._partitions.fits(owner, size, in_use=True):
                if size > self._partitions.share or not self._evict_unused(owner, now_ns):
                    return None
            if not self._has_slot(owner) and not (self._evict(owner, size, now_ns) and self._has_slot(owner)):
                return None
            session = FetchSession(self._new_id(), owner, uses_topic_ids, now_ns)
            session.counted = size
            self.slots.add(owner, 1)
            self._partitions.add(owner, size)
            self._sessions[session.id] = session
            return session

    def _has_slot(self, owner: str) -> bool:
        return self.slots.fits(owner, 1, in_use=True)

    def _new_id(self) -> int:
        while True:
            session_id = int.from_bytes(self._random_bytes(4), "big") & INT32_MAX
            if session_id != NO_SESSION_ID and session_id not in self._sessions:
                return session_id

    def _evict_unused(self, owner: str, now_ns: int) -> bool:
        def unused() -> Iterator[FetchSession]:
            for session in self._sessions.values():
                if now_ns - session.last_used_ns <= _EVICTION_NS:
                    return
                yield session

        # Of several equal sessions, this takes the first, which was used the longest time ago.
        return self._evict_one(owner, unused(), lambda session: -self.slots.used_by(session.owner))

    def _evict(self, owner: str, size: int, now_ns: int) -> bool:
        if self._evict_unused(owner, now_ns):
            return True
        # Thousands of consumers without a slot must not each search through all sessions at every fetch.
        refused_size, until_ns = self._refused.get(owner, (0, 0))
        if size <= refused_size and now_ns < until_ns:
            return False
        smaller = (
            session
            for session in self._sessions.values()
            if now_ns - session.created_ns > _EVICTION_NS and len(session.partitions) < size
        )
        if self._evict_one(
            owner, smaller, lambda session: (-self.slots.used_by(session.owner), len(session.partitions))
        ):
            return True
        if len(self._refused) >= _MOST_REFUSED:
            self._refused.clear()
        self._refused[owner] = size, now_ns + _RESCAN_NS
        return False

    def _evict_one(
        self, owner: str, sessions: Iterable[FetchSession], order: Callable[[FetchSession], int | tuple[int, int]]
    ) -> bool:
        """Drop the first session in this order that belongs to this owner, or to an owner with at least as many
        sessions.
        """
        held = self.slots.used_by(owner)
        found = min(
            (each for each in sessions if each.owner == owner or self.slots.used_by(each.owner) >= held),
            key=order,  # type: ignore[arg-type, unused-ignore]
            default=None,
        )
        if found is None:
            return False
        self._drop(found)
        self.evictions += 1
        return True


class FetchContext(Protocol):
    """One Fetch request's view of its session: the partitions to read, and which of them the response contains."""

    def topics_generation(self, topic: TopicKey, index: int) -> int:
        """Return the value of `TopicRegistry.generation` at the client's first request for a partition.

        If a topic was deleted later than this, the fetch can still find its name.
        """
        ...

    def wanted(self) -> Sequence[Wanted]:
        """Return the partitions to read, in reading order."""
        ...

    def finish(self, answered: list[Answered], sizes: Sequence[int]) -> tuple[int, list[Answered]]:
        """Return the session id of the response and the partitions that go into it. `sizes` are the partitions' record
        bytes.

        Raises KafkaError(INVALID_FETCH_SESSION_EPOCH) if a later request has used the session meanwhile.
        """
        ...

    def throttled(self) -> int:
        """Return the session id of a response without partitions, which leaves the session unchanged (KIP-219).

        Raises the same KafkaError as `finish`.
        """
        ...


class SessionlessContext:
    """A fetch without a session."""

    __slots__ = ("_topics_generation", "_wanted")

    def __init__(self, wanted: Sequence[Wanted], topics_generation: int) -> None:
        self._wanted = wanted
        self._topics_generation = topics_generation

    def topics_generation(self, topic: TopicKey, index: int) -> int:  # noqa: ARG002
        return self._topics_generation

    def wanted(self) -> Sequence[Wanted]:
        return self._wanted

    def finish(self, answered: list[Answered], sizes: Sequence[int]) -> tuple[int, list[Answered]]:  # noqa: ARG002
        return NO_SESSION_ID, answered

    def throttled(self) -> int:
        return NO_SESSION_ID


class FullContext:
    """A fetch that opens a session. The response has every partition."""

    __slots__ = ("_cache", "_owner", "_topics_generation", "_uses_topic_ids", "_wanted")

    def __init__(
        self,
        cache: FetchSessionCache,
        wanted: Sequence[Wanted],
        uses_topic_ids: bool,
        topics_generation: int,
        owner: str,
    ) -> None:
        self._owner = owner
        self._topics_generation = topics_generation
        self._cache = cache
        self._wanted = wanted
        self._uses_topic_ids = uses_topic_ids

    def topics_generation(self, topic: TopicKey, index: int) -> int:  # noqa: ARG002
        return self._topics_generation

    def wanted(self) -> Sequence[Wanted]:
        return self._wanted

    def finish(self, answered: list[Answered], sizes: Sequence[int]) -> tuple[int, list[Answered]]:
        session = None
        if all(len(topic) <= MAX_LENGTH for topic, _ in self._wanted):
            session = self._cache.create(self._uses_topic_ids, len(answered), self._owner)
        if session is None:
            return NO_SESSION_ID, answered
        by_key = {
            (topic, data.partition_index): (data, size) for (topic, data), size in zip(answered, sizes, strict=True)
        }
        with session.lock:
            for topic, request in self._wanted:
                cached = CachedPartition(topic, request, self._topics_generation)
                # `pop` frees the pairs one by one: freeing those of a large request at once would hold up other
                # threads.
                cached.note(*by_key.pop((topic, request.partition)))
                session.partitions[topic, request.partition] = cached
        return session.id, answered

    def throttled(self) -> int:
        # The consumer will request a session again.
        return NO_SESSION_ID


class IncrementalContext:
    """A later fetch of a session. The response has only changed partitions."""

    __slots__ = ("_epoch", "_session")

    def __init__(self, session: FetchSession) -> None:
        self._session = session
        self._epoch = session.epoch

    def topics_generation(self, topic: TopicKey, index: int) -> int:
        with self._session.lock:
            cached = self._session.partitions.get((topic, index))
        # Without an entry, the client's next request has removed the partition, and the client ignores this answer.
        return cached.topics_generation if cached is not None else 0

    def wanted(self) -> Sequence[Wanted]:
        with self._session.lock:
            return [(cached.topic, cached.request) for cached in self._session.partitions.values()]

    def finish(self, answered: list[Answered], sizes: Sequence[int]) -> tuple[int, list[Answered]]:
        session = self._session
        news = []
        with session.lock:
            if session.epoch != self._epoch:
                raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            for answer, size in zip(answered, sizes, strict=True):
                key = (answer[0], answer[1].partition_index)
                cached = session.partitions.get(key)
                if cached is not None and cached.note(answer[1], size):
                    news.append(answer)
                    if size:
                        # Partitions that had data go last, so that a full response starves no other.
                        session.partitions.move_to_end(key)
        return session.id, news

    def throttled(self) -> int:
        session = self._session
        with session.lock:
            if session.epoch != self._epoch:
                raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        return session.id


def context_of(
    cache: FetchSessionCache,
    request: FetchRequest,
    version: int,
    topics_generation: int = 0,
    owner: str = UNKNOWN_OWNER,
) -> FetchContext:
    """Return the context of a request. A new session counts towards the share of `owner`.

    `topics_generation` is the value of `TopicRegistry.generation` when the request arrived.

    Raises KafkaError: FETCH_SESSION_ID_NOT_FOUND, also for a session that grows beyond the limit;
    INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR, INVALID_TOPIC_EXCEPTION.
    """
    uses_topic_ids = version >= 13
    if request.session_epoch == FINAL_EPOCH or request.session_epoch == INITIAL_EPOCH:
        if request.session_id != NO_SESSION_ID:
            cache.remove(request.session_id)
        wanted = _each_once(request, version)
        if request.session_epoch == FINAL_EPOCH:
            return SessionlessContext(wanted, topics_generation)
        return FullContext(cache, wanted, uses_topic_ids, topics_generation, owner)
    session = cache.get(request.session_id)
    if session is None:
        raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    with session.lock:
        if session.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(request, version, topics_generation)
        if session.partitions:
            session.epoch = next_epoch(session.epoch)
            context: FetchContext = IncrementalContext(session)
        else:
            context = SessionlessContext((), topics_generation)
    if isinstance(context, IncrementalContext):
        cache.touch(session)
    else:
        cache.remove(session.id)
    return context


def _each_once(request: FetchRequest, version: int) -> list[Wanted]:
    """Return each partition once; if one is named twice, its last entry counts."""
    wanted = list(wanted_partitions(request, version))
    topics = {topic.topic_id if version >= 13 else topic.topic for topic in request.topics}
    if len(topics) == len(request.topics) and all(_are_different(topic.partitions) for topic in request.topics):
        return wanted
    return list({(topic, asked.partition): (topic, asked) for topic, asked in wanted}.values())


def _are_different(partitions: Sequence[FetchPartition]) -> bool:
    return len(partitions) < 2 or len({asked.partition for asked in partitions}) == len(partitions)


def wanted_partitions(request: FetchRequest, version: int) -> Iterable[Wanted]:
    """Yield the partitions that a request names, as the session stores them."""
    for topic in request.topics:
        key: TopicKey = topic.topic_id if version >= 13 else topic.topic
        for partition in topic.partitions:
            yield key, partition
