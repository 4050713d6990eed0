"""Tests of strings in the compact encoding at their maximum length."""

import pytest

from klamm.wire.primitives import (
    WireError,
    read_compact_string,
    write_compact_nullable_string,
    write_compact_string,
    write_unsigned_varint,
)

LONGEST = 32_767


@pytest.mark.parametrize("write", [write_compact_string, write_compact_nullable_string])
@pytest.mark.parametrize("length", [0, 1, 126, 127, 128, LONGEST])
def test_a_string_of_up_to_32767_bytes_is_read_back(write, length):
    out = bytearray()
    write(out, "s" * length)
    assert read_compact_string(bytes(out), 0) == ("s" * length, len(out))


@pytest.mark.parametrize("write", [write_compact_string, write_compact_nullable_string])
def test_a_longer_string_is_not_written(write):
    with pytest.raises(WireError, match="32768 bytes"):
        write(bytearray(), "s" * (LONGEST + 1))


def test_a_longer_string_is_not_read():
    data = bytearray()
    write_unsigned_varint(data, LONGEST + 2)
    data += b"s" * (LONGEST + 1)
    with pytest.raises(WireError, match="32768 bytes"):
        read_compact_string(bytes(data), 0)
