"""Tests of the keys of `record_encryption`: valid files, and the binding of data keys."""

import base64
import os

import pytest

from klamm.runtime import SystemClock
from klamm_filters.records.keys import (
    DecryptionError,
    KeyRing,
    UnknownKeyError,
    call_for_keys,
    checked_keys,
    read_keys,
)

KEY = base64.b64encode(bytes(32)).decode()


def ring(**keys):
    current = next(iter(keys))
    return KeyRing(checked_keys({"current": current, "keys": keys}), SystemClock(), os.urandom, 100, 60_000)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "there are no keys"),
        ({"current": "a", "keys": {}}, "there are no keys"),
        ({"current": "b", "keys": {"a": KEY}}, "`current` must be the id of one of the keys"),
        ({"keys": {"a": KEY}}, "`current` must be the id of one of the keys"),
        ({"current": "a", "keys": {"a": "x"}}, 'the key "a" is not base64'),
        ({"current": "a", "keys": {"a": "AAAA"}}, 'the key "a" must have 16, 24 or 32 bytes'),
        ({"current": "a", "keys": {"a": 5}}, 'the key "a" must have 16, 24 or 32 bytes'),
        ({"current": "", "keys": {"": KEY}}, "the id of a key must have 1 to 255 bytes"),
        ({"current": "a", "keys": {"a": KEY}, "key": 1}, "unknown key key"),
    ],
)
def test_invalid_keys_are_refused_without_printing_them(content, message):
    with pytest.raises(ValueError, match=message) as raised:
        checked_keys(content)
    assert KEY not in str(raised.value)


def test_an_invalid_file_of_keys_is_named(tmp_path):
    path = tmp_path / "keys.toml"
    path.write_text("x = ")
    with pytest.raises(ValueError, match="keys.toml"):
        read_keys(path)
    path.write_text(f'current = "a"\n[keys]\na = "{KEY}"\n')
    assert read_keys(path).by_id == {"a": bytes(32)}


def nothing():
    return {}


def test_an_invalid_function_of_keys_is_named():
    with pytest.raises(ValueError, match="nothing: there are no keys"):
        call_for_keys(f"{__name__}:nothing")


def test_a_data_key_is_unwrapped_only_with_its_own_key():
    first, same, other = ring(a=bytes(32)), ring(b=bytes([1]) * 32, a=bytes(32)), ring(a=bytes([2]) * 32)
    key = first.data_key(1)
    sealed = key.cipher.encrypt(bytes(12), b"value", b"")
    assert same.cipher_of(key.header).decrypt(bytes(12), sealed, b"") == b"value"
    assert same.cipher_of(key.header) is same.cipher_of(key.header), "it is unwrapped once"
    with pytest.raises(DecryptionError, match='the key "a" does not decrypt'):
        other.cipher_of(key.header)
    with pytest.raises(UnknownKeyError, match='there is no key "a"'):
        ring(b=bytes(32)).cipher_of(key.header)


@pytest.mark.parametrize("position", [0, 1, 2, 3, 20, -1])
def test_a_changed_encryption_header_is_refused(position):
    first = ring(a=bytes(32))
    header = bytearray(first.data_key(1).header)
    header[position] ^= 1
    with pytest.raises((DecryptionError, UnknownKeyError)):
        first.cipher_of(bytes(header))


@pytest.mark.parametrize("header", [b"", b"\2", b"\2\1", b"\2\1\5a", b"\1\1" + bytes(100), bytes(200)])
def test_an_invalid_encryption_header_is_refused(header):
    with pytest.raises(DecryptionError, match="cannot be read"):
        ring(a=bytes(32)).cipher_of(header)
