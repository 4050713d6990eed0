"""Tests of batch headers at their limits: the smallest and largest numbers of bytes and records."""

import re

import pytest

from klamm import ErrorCode, KafkaError
from klamm.wire.batch_headers import (
    HEADER_BYTES,
    BatchLimits,
    NotOneBatchError,
    check_count,
    encode_with_checksum,
    holds_one_batch,
    iterate_batches,
    read_header,
    validate_produced,
)
from klamm.wire.records import Record, encode_batch

BATCH = bytes(encode_batch([Record(value=b"one"), Record(value=b"two")]))
HEADER = read_header(BATCH)


def without_records(count):
    """Return a batch that consists of a header, which states this number of records."""
    changed = {"records_count": count, "last_offset_delta": count - 1, "batch_length": HEADER_BYTES - 12}
    return bytes(encode_with_checksum(HEADER._replace(**changed), b""))


def test_the_error_of_an_incomplete_header_names_its_bytes():
    assert read_header(b"x" + BATCH, 1) == HEADER
    with pytest.raises(KafkaError, match=re.escape("60 bytes are too few")) as refused:
        read_header(b"x" + BATCH[:60], 1)
    assert refused.value.error_code is ErrorCode.CORRUPT_MESSAGE


def test_a_batch_may_consist_of_its_header():
    assert len(without_records(1)) == HEADER_BYTES
    assert validate_produced(without_records(1), HEADER_BYTES).records_count == 1
    with pytest.raises(KafkaError, match="count of 0 records"):
        validate_produced(without_records(0), HEADER_BYTES)
    with pytest.raises(NotOneBatchError):
        validate_produced(without_records(1)[:-1], HEADER_BYTES)


def test_a_batch_of_maximum_size_is_accepted():
    assert validate_produced(BATCH, len(BATCH)) == HEADER
    with pytest.raises(KafkaError) as refused:
        validate_produced(BATCH, len(BATCH) - 1)
    assert refused.value.error_code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    ("produced", "is_one"),
    [
        (BATCH, True),
        (BATCH + BATCH[:-1], True),
        (BATCH + BATCH, False),
        (without_records(1), True),
        (BATCH[:-1], False),
        *((BATCH[:size_bytes], False) for size_bytes in range(HEADER_BYTES)),
    ],
)
def test_a_single_batch_may_be_followed_by_an_incomplete_one(produced, is_one):
    assert holds_one_batch(produced) is is_one


def test_batches_are_iterated_up_to_a_partial_one():
    for cut, whole in ((0, 2), (1, 1), (len(BATCH) - HEADER_BYTES, 1), (len(BATCH), 1)):
        produced = (BATCH * 2)[: 2 * len(BATCH) - cut]
        assert [(header, bytes(one)) for header, one in iterate_batches(produced)] == [(HEADER, BATCH)] * whole
    assert [bytes(one) for _, one in iterate_batches(without_records(1))] == [without_records(1)]


def test_the_number_of_records_has_a_maximum():
    check_count(HEADER, BatchLimits(max_records=2))
    with pytest.raises(KafkaError) as refused:
        check_count(HEADER, BatchLimits(max_records=1))
    assert refused.value.error_code is ErrorCode.MESSAGE_TOO_LARGE


def beginning(length, magic):
    """Return the beginning of a batch up to its magic. It states how many bytes follow the first twelve."""
    return bytes(8) + length.to_bytes(4, "big") + bytes(4) + bytes([magic])


def test_an_incomplete_batch_after_a_batch_is_left_out():
    for rest in (BATCH[:-1], BATCH[:11], beginning(1000, 0), beginning(1000, 2)):
        assert validate_produced(BATCH + rest, len(BATCH)) == HEADER
    for rest in (beginning(1000, 3), beginning(1, 2)):
        with pytest.raises(KafkaError) as refused:
            validate_produced(BATCH + rest, len(BATCH))
        assert refused.value.error_code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("produced", "error"),
    [
        (beginning(1000, 2), NotOneBatchError),
        (beginning(14, 1) + bytes(9), NotOneBatchError),
        (beginning(13, 1) + bytes(8), KafkaError),
        (beginning(1000, 9), KafkaError),
        (beginning(1000, 2)[:-1], NotOneBatchError),
    ],
)
def test_bytes_too_short_for_a_header_are_no_batch_or_corrupt(produced, error):
    with pytest.raises(KafkaError) as refused:
        validate_produced(produced, 1_000_000)
    assert type(refused.value) is error
