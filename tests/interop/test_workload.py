"""The matrix is worth what its checks catch: each fault a server could commit, made by hand."""

from __future__ import annotations

import pytest

from tests.interop.workload import PARTITIONS, Consumed, check_at_least_once, check_read_back, records

COUNT = 30


def read_back() -> list[Consumed]:
    """What a server without faults would hand out."""
    return [
        Consumed(number % PARTITIONS, number // PARTITIONS, key, value)
        for number, (key, value) in enumerate(records(COUNT))
    ]


def test_a_faultless_topic_passes() -> None:
    check_read_back(read_back(), COUNT)
    check_at_least_once([read_back()], repeatable=0, count=COUNT)


@pytest.mark.parametrize("lost", [0, 15, COUNT - 1])
def test_a_lost_record_is_noticed(lost: int) -> None:
    remaining = [record for record in read_back() if record.number != lost]
    with pytest.raises(AssertionError):
        check_read_back(remaining, COUNT)
    with pytest.raises(AssertionError, match="1 records were lost"):
        check_at_least_once([remaining], repeatable=COUNT, count=COUNT)


def test_a_record_that_was_stored_twice_is_noticed() -> None:
    stored = read_back()
    last = stored[-1]
    with pytest.raises(AssertionError, match="came after"):
        check_read_back([*stored, last._replace(offset=last.offset + 1)], COUNT)


def test_two_records_in_each_others_place_are_noticed() -> None:
    stored = read_back()
    first, second = stored[0], stored[PARTITIONS]
    stored[0], stored[PARTITIONS] = second._replace(offset=first.offset), first._replace(offset=second.offset)
    with pytest.raises(AssertionError, match="came after"):
        check_read_back(stored, COUNT)


def test_a_record_under_another_ones_key_is_noticed() -> None:
    stored = read_back()
    stored[3] = stored[3]._replace(key=stored[4].key)
    with pytest.raises(AssertionError):
        check_read_back(stored, COUNT)


def test_a_group_that_starts_over_is_noticed() -> None:
    with pytest.raises(AssertionError, match="30 records were read again"):
        check_at_least_once([read_back(), read_back()], repeatable=COUNT - 1, count=COUNT)
