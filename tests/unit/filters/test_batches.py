"""Decrypted batches keep their attributes, offsets and timestamps, also after compaction."""

import os

import pytest

from klamm.filters import RecordAccess
from klamm.runtime import SystemClock
from klamm.testing import MemoryListener
from klamm.wire.compression import Codec
from klamm.wire.messages.fetch import PartitionData
from klamm.wire.messages.produce import PartitionProduceData
from klamm.wire.records import (
    CONTROL,
    TRANSACTIONAL,
    ControlRecordType,
    Record,
    decode_records,
    encode_batch,
    encode_end_transaction_marker,
    iterate_batches,
)
from klamm_filters.records.batches import decrypt, encrypt
from klamm_filters.records.keys import KeyRing, checked_keys

RING = KeyRing(checked_keys({"current": "k", "keys": {"k": bytes(32)}}), SystemClock(), os.urandom, 100, 60_000)
PLAIN = [Record(timestamp_ms=5 + number, key=b"k", value=b"value %d" % number) for number in range(4)]
KEPT = (
    "base_offset",
    "partition_leader_epoch",
    "attributes",
    "last_offset_delta",
    "delete_horizon_ms",
    "max_timestamp_ms",
    "producer_id",
    "producer_epoch",
    "base_sequence",
)


ACCESS = RecordAccess(MemoryListener().context)


def encrypted(batch, ring):
    partition = PartitionProduceData(0, batch)
    with ACCESS.of(partition) as records:
        encrypt(records, "t", ring)
    return partition.records


def decrypted(batches, ring, *, plain_passes):
    partition = PartitionData(records=batches)
    with ACCESS.of(partition) as records:
        decrypt(records, "t", ring, plain_passes=plain_passes)
    return partition.records


def ciphertext():
    return list(decode_records(encrypted(bytes(encode_batch(PLAIN)), RING)))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"last_offset": 19},
        {"codec": Codec.ZSTD, "partition_leader_epoch": 3},
        {"log_append_time_ms": 1234},
        {"delete_horizon_ms": 3},
        {"attributes": TRANSACTIONAL, "producer_id": 7, "producer_epoch": 1, "base_sequence": 9},
    ],
    ids=str,
)
def test_a_decrypted_batch_keeps_its_attributes_and_offsets(options):
    # Compaction has removed the first and the third record.
    left = [one._replace(offset=10 + offset) for offset, one in enumerate(ciphertext()) if offset % 2]
    stored = bytes(encode_batch(left, base_offset=10, **options))
    ((before, _),) = iterate_batches(stored)
    ((after, batch),) = iterate_batches(decrypted(stored, RING, plain_passes=False))
    assert [getattr(after, name) for name in KEPT] == [getattr(before, name) for name in KEPT]
    found = list(decode_records(batch))
    assert [(one.offset, one.value) for one in found] == [(11, b"value 1"), (13, b"value 3")]
    assert [one.timestamp_ms for one in found] == [one.timestamp_ms for one in decode_records(stored)]


def test_markers_and_plain_batches_stay_unchanged():
    marker = bytes(
        encode_end_transaction_marker(
            ControlRecordType.COMMIT, timestamp_ms=1, producer_id=1, producer_epoch=0, coordinator_epoch=0
        )
    )
    plain = bytes(encode_batch(PLAIN))
    assert decrypted(marker + plain, RING, plain_passes=True) == marker + plain
    secret = encrypted(plain, RING)
    read = list(iterate_batches(decrypted(marker + secret + plain, RING, plain_passes=True)))
    assert [header.attributes & CONTROL for header, _ in read] == [CONTROL, 0, 0]
    assert bytes(read[0][1]) == marker
    assert bytes(read[2][1]) == plain


def test_a_truncated_last_batch_is_left_out():
    secret = encrypted(bytes(encode_batch(PLAIN)), RING)
    assert len(list(iterate_batches(decrypted(secret + secret[:-1], RING, plain_passes=False)))) == 1
