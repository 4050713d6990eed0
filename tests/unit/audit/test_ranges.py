"""Compares ranges with plain sets."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm_spark.lake.ranges import Ranges

numbers = st.sets(st.integers(0, 60))


def ranges(numbers):
    return Ranges((number, number) for number in numbers)


def members(found):
    return {number for first, last in found for number in range(first, last + 1)}


@given(numbers, numbers)
def test_ranges_equal_the_sets_of_their_numbers(one, other):
    left, right = ranges(one), ranges(other)
    assert members(left | right) == one | other
    assert members(left - right) == one - other
    assert members(left & right) == one & other
    assert left.count() == len(one)
    assert (left == right) == (one == other)


@given(numbers)
def test_ranges_are_sorted_and_do_not_touch(one):
    pairs = list(ranges(one))
    assert all(last + 1 < first for (_, last), (first, _) in zip(pairs, pairs[1:], strict=False))


def test_ranges_are_printed_merged():
    assert str(Ranges([(0, 4), (9, 9), (5, 6)])) == "0-6, 9"


def test_a_range_whose_end_precedes_its_start_is_refused():
    with pytest.raises(ValueError, match="from 3 to 2"):
        Ranges([(3, 2)])


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9))))
def test_numbers_in_several_ranges_count_as_doubled(some):
    pairs = [(first, first + more) for first, more in some]
    count = Counter(number for first, last in pairs for number in range(first, last + 1))
    assert members(Ranges.doubled(pairs)) == {number for number, times in count.items() if times > 1}
