"""Tests of the checks in `workload.py`: they notice every fault that a server could commit."""

from __future__ import annotations

import pytest

from tests.interop.workload import PARTITIONS, Consumed, check_at_least_once, check_read_back, records

COUNT = 30


def read_back() -> list[Consumed]:
    """Return the records that a server without faults would return."""
    return [
        Consumed(number % PARTITIONS, number // PARTITIONS, key, value)
        for number, (key, value) in enumerate(records(COUNT))
    ]


def test_the_checks_pass_without_a_fault() -> None:
    check_read_back(read_back(), COUNT)
    check_at_least_once([read_back()], repeatable=0, count=COUNT)


@pytest.mark.parametrize("lost", [0, 15, COUNT - 1])
def test_the_check_notices_a_lost_record(lost: int) -> None:
    remaining = [record for record in read_back() if record.number != lost]
    with pytest.raises(AssertionError):
        check_read_back(remaining, COUNT)
    with pytest.raises(AssertionError, match="1 records were lost"):
        check_at_least_once([remaining], repeatable=COUNT, count=COUNT)


def test_the_check_notices_a_record_that_was_stored_twice() -> None:
    stored = read_back()
    last = stored[-1]
    with pytest.raises(AssertionError, match="came after"):
        check_read_back([*stored, last._replace(offset=last.offset + 1)], COUNT)


def test_the_check_notices_two_swapped_records() -> None:
    stored = read_back()
    first, second = stored[0], stored[PARTITIONS]
    stored[0], stored[PARTITIONS] = second._replace(offset=first.offset), first._replace(offset=second.offset)
    with pytest.raises(AssertionError, match="came after"):
        check_read_back(stored, COUNT)


def test_the_check_notices_a_record_with_the_key_of_another() -> None:
    stored = read_back()
    stored[3] = stored[3]._replace(key=stored[4].key)
    with pytest.raises(AssertionError):
        check_read_back(stored, COUNT)


def test_the_check_notices_a_group_that_starts_again() -> None:
    with pytest.raises(AssertionError, match="30 records were read again"):
        check_at_least_once([read_back(), read_back()], repeatable=COUNT - 1, count=COUNT)
