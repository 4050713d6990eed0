"""`SharePartitions`: all share partitions of a broker, and the sessions that read them.

Follows Kafka's `SharePartitionManager`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from functools import partial

from klamm.runtime import Clock, Purgatory, Scheduler
from klamm_broker.configs.group_configs import GroupConfigs
from klamm_broker.limits.ledger import UNKNOWN_OWNER, Ledger
from klamm_broker.limits.owners import GROUPS as OWNERS
from klamm_broker.share import persistence
from klamm_broker.share.account import ShareAccount
from klamm_broker.share.dead_letters import DeadLetters, NoDeadLetters
from klamm_broker.share.live_partition import LiveSharePartition, ShareParts
from klamm_broker.share.meters import ShareMeters
from klamm_broker.share.partition import Acknowledgement
from klamm_broker.share.persistence import SavedPartition, SharePartitionKey
from klamm_broker.share.sessions import SessionKey, ShareSession, ShareSessionCache
from klamm_broker.storage.store import Statement, Store
from klamm_broker.topics.topic import Partition, Topic
from klamm_broker.topics.topic_registry import TopicRegistry


class SharePartitions:
    """All share partitions of a broker. Any thread may call it.

    Life cycle: `load()` → requests and timers → `close()`.
    """

    # 9 parameters: the parts of the broker that it uses, and three limits.
    def __init__(
        self,
        clock: Clock,
        scheduler: Scheduler,
        store: Store,
        configs: GroupConfigs,
        topics: TopicRegistry,
        purgatory: Purgatory,
        max_sessions: int,
        max_session_partitions: int,
        ledger: Ledger,
    ) -> None:
        self._store = store
        self.clock = clock
        self._ledger = ledger
        self._topics = topics
        self.meters = ShareMeters()
        self.unwritten_group: Callable[[str], Sequence[Statement]] = lambda group_id: ()
        """Returns the statements that write a group's row if the store may lack it. Set before the first request.

        Without the row, the next start would delete the group's delivery states.
        """
        self.letters: DeadLetters = NoDeadLetters()
        """The writer of dead letters. Set before the first request."""
        self._parts = ShareParts(
            clock,
            scheduler,
            store,
            configs,
            purgatory.check_and_complete,
            self.meters,
            lambda group_id: self.unwritten_group(group_id),
            lambda: self.letters,
        )
        self.sessions = ShareSessionCache(max_sessions, max_session_partitions, self._session_ended)
        # Protects the map of partitions.
        self._lock = threading.Lock()
        self.acknowledged: Counter[int] = Counter()
        """Records that were acknowledged, by type."""
        self._partitions: dict[str, dict[SharePartitionKey, LiveSharePartition]] = {}

    def count(self, acknowledgements: Iterable[Acknowledgement]) -> None:
        """Count acknowledged records by type. Concurrent calls may miss some."""
        for each in acknowledgements:
            if len(each.types) == 1:
                self.acknowledged[each.types[0]] += each.last - each.first + 1
            else:
                self.acknowledged.update(each.types)

    def load(self) -> None:
        """Load the delivery states, and delete those of deleted topics and groups. Raises StoreError."""
        self._store.submit([persistence.DELETE_WITHOUT_GROUP])
        gone: set[tuple[str, bytes]] = set()
        owners = OWNERS.load(self._store)
        began_ns = self._parts.clock.monotonic_ns()
        for saved in persistence.load(self._store):
            topic = self._topics.by_id(saved.key.topic_id)
            partition = topic.partition(saved.key.partition) if topic is not None else None
            if partition is None:
                gone.add((saved.key.group_id, saved.key.topic_id))
            else:
                self._restore(saved, partition, owners.get(saved.key.group_id, UNKNOWN_OWNER))
                self.meters.loaded(self._parts.clock.monotonic_ns() - began_ns)
        if gone:
            self._store.submit([persistence.delete_topic(*each) for each in sorted(gone)])

    def _restore(self, saved: SavedPartition, partition: Partition, owner: str) -> None:
        account = ShareAccount(self._ledger, owner, saved.key.group_id)
        account.count(0)
        live = LiveSharePartition(saved.key, partition, self._parts, account)
        live.restore(saved)
        self._partitions.setdefault(saved.key.group_id, {})[saved.key] = live

    def send_letters(self) -> None:
        """Send the dead letters that were not sent before a stop."""
        for live in self.all():
            live.send_letters()

    def close(self) -> None:
        """End the timers, and answer requests that wait for a write."""
        for live in self.all():
            live.close()

    def all(self) -> list[LiveSharePartition]:
        """Return all share partitions at this moment."""
        with self._lock:
            return [live for by_key in self._partitions.values() for live in by_key.values()]

    def of_group(self, group_id: str) -> list[LiveSharePartition]:
        """Return the partitions of one group."""
        with self._lock:
            return list(self._partitions.get(group_id, {}).values())

    def find(self, group_id: str, topic: Topic, index: int) -> LiveSharePartition | None:
        """Return the share partition of a group if the group has read the partition."""
        with self._lock:
            return self._partitions.get(group_id, {}).get(SharePartitionKey(group_id, topic.id, index))

    def get_or_create(self, group_id: str, partition: Partition, owner: str) -> LiveSharePartition:
        """Return the share partition of a group. A new one begins at the offset that the group's config names.

        Its bytes count towards the limit of `owner`; after a restart, towards that of the group's creator. Raises
        KafkaError(GROUP_MAX_SIZE_REACHED) if there is no room for a new share partition.
        """
        key = SharePartitionKey(group_id, partition.topic.id, partition.index)
        with self._lock:
            live = self._partitions.get(group_id, {}).get(key)
            if live is None:
                account = ShareAccount(self._ledger, owner, group_id)
                account.open()
                live = LiveSharePartition(key, partition, self._parts, account)
                self._partitions.setdefault(group_id, {})[key] = live
            return live

    # Ends of members, groups and topics

    def member_gone(self, group_id: str, member_id: str) -> None:
        """End the session of a member that has left its group, and release its records."""
        self.sessions.member_gone(group_id, member_id)
        for live in self.of_group(group_id):
            live.release(member_id)

    def _session_ended(self, key: SessionKey) -> None:
        for live in self._of_session(key):
            live.release(key.member_id)

    def release(self, ended: Iterable[ShareSession]) -> None:
        """Release the records of sessions that ended with their connection, unless the member has started another
        session.
        """
        for session in ended:
            is_due = partial(self.sessions.is_unreleased, session)
            for live in self._of_session(session.key):
                live.release(session.key.member_id, is_due)
            self.sessions.released(session)

    def _of_session(self, key: SessionKey) -> Iterator[LiveSharePartition]:
        for live in self.of_group(key.group_id):
            if live.partition.leadership.leader_id == key.node_id:
                yield live

    def group_deleted(self, group_id: str) -> None:
        """Forget the positions of a deleted group, including those that were written after the group's rows were
        deleted.
        """
        self.meters.forget(group_id)
        with self._lock:
            dropped = self._partitions.pop(group_id, {})
            _close(dropped.values())
            if dropped:
                # Submitted under the lock, so that the rows of a new group with this id are written later.
                self._store.submit([persistence.delete_group(group_id)])
        self._wake(dropped.values())

    def topics_deleted(self, topic_ids: Set[bytes]) -> None:
        """Forget the positions of groups in deleted topics."""
        self._forget(lambda key: key.topic_id in topic_ids)

    def _forget(self, matches: Callable[[SharePartitionKey], bool]) -> None:
        with self._lock:
            gone = [live for by_key in self._partitions.values() for key, live in by_key.items() if matches(key)]
            for live in gone:
                del self._partitions[live.key.group_id][live.key]
        _close(gone)
        owners = sorted({(live.key.group_id, live.key.topic_id) for live in gone})
        if owners:
            self._store.submit([persistence.delete_topic(*owner) for owner in owners])
        self._wake(gone)

    def _wake(self, gone: Iterable[LiveSharePartition]) -> None:
        """Wake the fetches that wait for forgotten partitions."""
        for live in gone:
            self._parts.wake(live)

    def forget_topic_of(self, group_id: str, topic_id: bytes) -> None:
        """Forget the positions of one group in a topic."""
        self._forget(lambda key: key.group_id == group_id and key.topic_id == topic_id)


def _close(partitions: Iterable[LiveSharePartition]) -> None:
    for live in partitions:
        live.close()
