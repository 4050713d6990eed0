"""The checks of transactions, members of consumer groups and feature levels after a crash."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from klamm.wire.messages.end_txn import EndTxnRequest
from klamm.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.wire.messages.init_producer_id import InitProducerIdRequest
from klamm.wire.records import decode_records, iterate_batches
from klamm_broker.features import SUPPORTED
from klamm_broker.log.partition_log import PartitionLog
from tests.faults.crash_states.coordinated import TIMEOUT_MS, TRANSACTIONAL_GROUP, UNKNOWN_EPOCH
from tests.faults.crash_states.view import View
from tests.faults.crash_states.workload import CONSUMER_GROUP, Incarnation, QuietHarness, Sent, Transaction

COMMITTED = "a transaction that was committed: its records and offsets, all of them"
NOT_COMMITTED = "a transaction that was aborted or not ended: none of its records and offsets"
OPEN = "a transaction that was not ended: its producer continues it, or it is aborted at its timeout"
EPOCHS = "epochs of transactional producers: none is issued twice"
MEMBERS = "members of consumer groups and their epochs (KIP-848)"
FEATURES = "feature levels"
_READ_COMMITTED = 1

Logs = Mapping[tuple[Incarnation, int], PartitionLog]


class CoordinatedPromises:
    """The checks of one broker that was opened after a crash. They change its state, so they must run last."""

    def __init__(self, view: View, harness: QuietHarness, logs: Logs) -> None:
        self._view = view
        self._harness = harness
        self._logs = logs
        self._sent = [each for each in view.work.sent if each.transaction is not None and view.has_started(each.event)]
        self._transactions = view.work.transactions

    def check(self) -> None:
        """Run all checks. Raises AssertionError."""
        self._check_members()
        self._check_features()
        if not self._transactions:
            return
        self._check_undecided()
        self._check_outcomes((), are_all_ended=False)
        committed_now = self._commit_open()
        self._check_epochs()
        self._check_outcomes(committed_now, are_all_ended=True)
        for (incarnation, partition), log in self._logs.items():
            assert log.last_stable_offset == log.end_offset, f"{incarnation.name}-{partition}: readers are stuck"

    # Transactions

    def _check_outcomes(self, committed_now: Collection[Transaction], *, are_all_ended: bool) -> None:
        """Check that transactions are visible as a whole or not at all. A committed transaction may start after one
        that is still open, and is then not visible yet.
        """
        visible = self._visible()
        offset = self._offset()
        effective = {each.transaction for each in visible}
        for transaction in self._transactions:
            name = f"the transaction {self._transactions.index(transaction)} of {transaction.transactional_id}"
            ends = [each for each in transaction.ends if self._view.has_started(each)]
            certain = [each.value for each in ends if self._view.is_certain(each)]
            offsets = [each for each in transaction.offsets if self._view.has_started(each)]
            is_visible = transaction in effective or any(each.value == offset for each in offsets)
            may_commit = transaction in committed_now or any(each.value for each in ends)
            if certain == [False] or not may_commit:
                assert not is_visible, f"{name} is seen, and was not committed"
                self._view.held[NOT_COMMITTED] += certain == [False]
            elif are_all_ended and (certain == [True] or is_visible or transaction in committed_now):
                self._check_whole(name, transaction, visible, offset)
                self._view.held[COMMITTED] += certain == [True]

    def _check_whole(self, name: str, transaction: Transaction, visible: set[Sent], offset: int) -> None:
        for sent in self._sent:
            log = self._logs.get((sent.incarnation, sent.partition))
            if sent.transaction is not transaction or log is None or sent.offset is None or sent in visible:
                continue
            if not self._view.is_certain(sent.event) or sent.offset < log.log_start_offset:
                continue
            is_superseded = sent.incarnation.is_compacted and any(
                each.incarnation is sent.incarnation and each.key == sent.key and (each.offset or 0) > sent.offset
                for each in visible
            )
            assert is_superseded, f"{name} lacks {sent.value!r}"
        certain = [each.value for each in transaction.offsets if self._view.is_certain(each)]
        assert offset >= max(certain, default=-1), f"{name} has committed the offset {certain}, which is {offset}"

    def _visible(self) -> set[Sent]:
        """Return the transactional records that consumers with `read_committed` get."""
        by_value = {each.value: each for each in self._sent}
        found: set[Sent] = set()
        for (incarnation, partition), log in self._logs.items():
            offset = log.log_start_offset
            while offset < log.last_stable_offset:
                values, next_offset = self._read(incarnation.name, partition, offset)
                if next_offset == offset:
                    break
                offset = next_offset
                found |= {by_value[each] for each in values if each in by_value}
        return found

    def _read(self, topic: str, partition: int, offset: int) -> tuple[list[bytes], int]:
        """Return the values of one fetch, and the offset at which the next one starts."""
        wanted = FetchTopic(
            topic, partitions=[FetchPartition(partition, fetch_offset=offset, partition_max_bytes=1 << 20)]
        )
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, isolation_level=_READ_COMMITTED, topics=[wanted], session_epoch=-1
        )
        data = self._harness.ask(request, 12).responses[0].partitions[0]
        assert data.error_code == 0
        aborted = sorted((each.first_offset, each.producer_id) for each in data.aborted_transactions or ())
        skipped: set[int] = set()
        values: list[bytes] = []
        for header, batch in iterate_batches(bytes(data.records)):
            while aborted and aborted[0][0] <= header.last_offset:
                skipped.add(aborted.pop(0)[1])
            offset = header.last_offset + 1
            if header.is_control:
                skipped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in skipped):
                values += [each.value for each in decode_records(batch) if each.value is not None]
        return values, offset

    def _offset(self) -> int:
        """Return the committed offset of the transactional group, or -1."""
        for group in self._harness.broker.groups.registry.all():
            if group.group_id == TRANSACTIONAL_GROUP:
                found = group.offsets.get("ledger", {}).get(0)
                return -1 if found is None else int(found.offset)
        return -1

    def _check_undecided(self) -> None:
        """Check that readers wait only for transactions that are open at the coordinator."""
        registry = self._harness.broker.transactions.registry
        open_ids = {
            (record.producer_id, *each)
            for record in (each.record for each in registry.all())
            if record.state.value == "Ongoing"
            for each in record.partitions
        }
        for (incarnation, partition), log in self._logs.items():
            for entry in log.active_producers():
                if entry.in_transaction:
                    place = (entry.producer_id, incarnation.name, partition)
                    assert place in open_ids, f"{place} has a transaction without an end"

    def _commit_open(self) -> list[Transaction]:
        """Let producers that were stopped within a transaction commit it, if they can. Return those that could."""
        committed = []
        for transaction in self._transactions:
            if any(self._view.has_started(each) for each in transaction.ends):
                continue
            sent = [each for each in self._sent if each.transaction is transaction]
            is_sent = any(self._view.is_certain(each.event) and each.offset is not None for each in sent)
            identities = [
                each for each in self._identities(transaction.transactional_id) if self._view.has_started(each)
            ]
            if not is_sent or not self._view.is_certain(identities[-1]):
                continue
            answer = self._harness.ask(EndTxnRequest(transaction.transactional_id, *identities[-1].value, True), 3)
            self._harness.settle()
            if answer.error_code == 0:
                committed.append(transaction)
            assert self._view.power_cut or answer.error_code == 0, f"a producer cannot go on: {answer.error_code}"
            self._view.held[OPEN] += 1
        return committed

    def _identities(self, transactional_id: str) -> list[Any]:
        return list(self._view.of("identity", transactional_id))

    def _check_epochs(self) -> None:
        """Check that the next identity is above all issued ones, and above all in the logs."""
        for transactional_id in sorted({each.transactional_id for each in self._transactions}):
            given = [each.value for each in self._identities(transactional_id) if self._view.is_certain(each)]
            request = InitProducerIdRequest(transactional_id, TIMEOUT_MS)
            answer = self._harness.ask(request, 5)
            self._harness.settle()
            if answer.error_code:
                answer = self._harness.ask(request, 5)
            assert answer.error_code == 0
            identity = (answer.producer_id, answer.producer_epoch)
            assert all(identity > each for each in given), f"{transactional_id} is {identity} again, after {given}"
            for log in self._logs.values():
                for entry in log.active_producers():
                    if entry.producer_id == identity[0]:
                        seen = entry.producer_epoch
                        is_new = identity[1] > seen or (identity[1] == seen and not entry.batches)
                        assert is_new, f"{transactional_id} is {identity}, and a log has its epoch {seen}"
            self._view.held[EPOCHS] += bool(given)

    # The rest

    def _check_members(self) -> None:
        groups = {each.group_id: each for each in self._harness.broker.groups.registry.all()}
        members = getattr(groups.get(CONSUMER_GROUP), "members", {})
        for member_id in {event.key for event in self._view.events if event.kind == "member"}:
            possible = self._view.possible("member", member_id)
            found = members[member_id].epoch if member_id in members else None
            if not self._view.power_cut or self._view.work.settings.get("offsets_commit_fsync"):
                is_any = found is not None and UNKNOWN_EPOCH in possible
                assert is_any or found in possible, f"member {member_id} has the epoch {found}, not one of {possible}"
            self._view.held[MEMBERS] += found is not None

    def _check_features(self) -> None:
        features = self._harness.broker.registered_features
        defaults = {each.name: each.level for each in SUPPORTED}
        for name in {event.key for event in self._view.events if event.kind == "feature"}:
            possible = [defaults[name] if each is None else each for each in self._view.possible("feature", name)]
            found = features.level(name)
            assert found in possible, f"{name} is {found}, not one of {possible}"
            self._view.held[FEATURES] += None not in self._view.possible("feature", name)
