"""Compares random commits, transactions, deletions, expiries and restarts with a model of a group's offsets."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from groups_playbook import GROUP, Call, Playbook
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from klamm import ErrorCode
from klamm_broker.groups.offsets import UNSTABLE, CommitRequest, FetchedOffsets, PartitionCommit

RETENTION_MS = 7 * 86_400_000
# Two steps are longer than the retention time. The milliseconds are more than those that order commits.
LONG_MS = RETENTION_MS // 2 + 60_000
KEYS = (("t", 0), ("t", 1), ("u", 0))
WANTED = {"t": [0, 1], "u": [0]}

Key = tuple[str, int]


class Commit(NamedTuple):
    """A committed position, with its number among the commits and its time."""

    offset: int
    at_ms: int


class Model:
    """A model of a group's offsets. An offset is the number of its commit, so a larger one is later."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.committed: dict[Key, Commit] = {}
        self.pending: dict[int, dict[Key, Commit]] = {}

    def end(self, producer_id: int, *, committed: bool) -> None:
        for key, commit in self.pending.pop(producer_id, {}).items():
            if committed:
                self.committed[key] = max(commit, self.committed.get(key, commit))

    def is_unstable(self, key: Key) -> bool:
        return any(key in pending for pending in self.pending.values())

    def delete(self, keys: Iterable[Key]) -> None:
        for key in keys:
            for commits in (self.committed, *self.pending.values()):
                commits.pop(key, None)

    def expire(self) -> None:
        for key, commit in list(self.committed.items()):
            if not self.is_unstable(key) and self.now_ms - commit.at_ms >= RETENTION_MS:
                del self.committed[key]

    def fetched(self, *, stable: bool) -> dict[Key, int | None]:
        return {
            key: UNSTABLE.offset
            if stable and self.is_unstable(key)
            else self.committed[key].offset
            if key in self.committed
            else None
            for key in KEYS
        }


class Offsets(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.play = Playbook(Path(self.directory.name) / "klamm.db")
        self.model = Model()
        self.commits = 0

    keys = st.lists(st.sampled_from(KEYS), min_size=1, unique=True)
    producers = st.sampled_from([4000, 4001])

    def next_commits(self, keys: Sequence[Key]) -> tuple[list[PartitionCommit], dict[Key, Commit]]:
        self.commits += 1
        commits = [PartitionCommit(topic, index, self.commits, 3, "") for topic, index in keys]
        return commits, dict.fromkeys(keys, Commit(self.commits, self.model.now_ms))

    @rule(keys=keys)
    def commit(self, keys: list[Key]) -> None:
        commits, expected = self.next_commits(keys)
        assert self.play.commit(*commits) == [ErrorCode.NONE] * len(keys)
        self.model.committed.update(expected)

    @rule(keys=keys, producer_id=producers)
    def commit_in_a_transaction(self, keys: list[Key], producer_id: int) -> None:
        commits, expected = self.next_commits(keys)
        call: Call[Sequence[ErrorCode]] = Call()
        self.play.coordinator.transactional_offsets.commit(producer_id, CommitRequest(GROUP, commits), call)
        self.play.settle()
        assert call.result == [ErrorCode.NONE] * len(keys)
        self.model.pending.setdefault(producer_id, {}).update(expected)

    @rule(producer_id=producers, committed=st.booleans())
    def end_the_transaction(self, producer_id: int, committed: bool) -> None:
        call: Call[object] = Call()
        self.play.coordinator.transactional_offsets.end(producer_id, call, committed=committed)
        self.play.settle()
        assert call.result is None
        self.model.end(producer_id, committed=committed)

    @rule(keys=keys)
    def delete_offsets(self, keys: list[Key]) -> None:
        call: Call[Mapping[str, ErrorCode]] = Call()
        wanted: dict[str, list[int]] = {}
        for topic, index in keys:
            wanted.setdefault(topic, []).append(index)
        if not self.play.coordinator.administration.exists(GROUP):
            assert not self.model.committed
            assert not any(self.model.pending.values())
            return
        self.play.coordinator.offsets.delete(GROUP, wanted, call)
        self.play.settle()
        assert call.result == dict.fromkeys(wanted, ErrorCode.NONE)
        self.model.delete(keys)

    @rule(topic=st.sampled_from(["t", "u"]))
    def delete_the_topic(self, topic: str) -> None:
        self.play.coordinator.offsets.topics_deleted({topic})
        self.play.settle()
        self.model.delete(key for key in KEYS if key[0] == topic)

    @rule()
    def delete_the_group(self) -> None:
        call: Call[Mapping[str, ErrorCode]] = Call()
        self.play.coordinator.administration.delete_groups([GROUP], call)
        self.play.settle()
        assert call.result[GROUP] in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND)
        self.model.delete(KEYS)

    @rule(ms=st.just(LONG_MS) | st.just(1))
    def let_time_pass(self, ms: int) -> None:
        self.play.clock.advance_ms(ms)
        self.play.coordinator.offsets.expire()
        self.play.settle()
        self.model.now_ms += ms
        self.model.expire()

    @rule()
    def restart(self) -> None:
        self.play.restart()

    @rule()
    def crash(self) -> None:
        self.play.crash()

    def fetched(self, *, stable: bool) -> dict[Key, int | None]:
        call: Call[Sequence[FetchedOffsets]] = Call()
        self.play.coordinator.offsets.fetch([(GROUP, WANTED)], call, require_stable=stable)
        (fetched,) = call.result
        found = {key: fetched[key[0]][key[1]] for key in KEYS}
        return {key: None if each is None else each.offset for key, each in found.items()}

    @invariant()
    def the_offsets_are_the_models(self) -> None:
        for stable in (False, True):
            assert self.fetched(stable=stable) == self.model.fetched(stable=stable)

    def teardown(self) -> None:
        """Compare the disk with the model, before and after the transactions commit."""
        self.play.crash()
        self.the_offsets_are_the_models()
        for producer_id in (4000, 4001):
            self.end_the_transaction(producer_id, committed=True)
        self.the_offsets_are_the_models()
        self.play.close()
        self.directory.cleanup()


TestOffsets = Offsets.TestCase
TestOffsets.settings = settings(max_examples=60, stateful_step_count=30)
