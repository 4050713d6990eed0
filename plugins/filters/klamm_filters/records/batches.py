"""Encrypts the values in produced batches, and decrypts those in fetched ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from klamm import ErrorCode, KafkaError
from klamm.wire.records import (
    Record,
    RecordBatchHeader,
    decode_records,
    encode_batch_like,
    iterate_batches,
    validate_produced,
)
from klamm_filters.records.keys import NONCE_BYTES, TAG_BYTES, DecryptionError, KeyRing

HEADER: Final = "klamm-encryption"
"""The header of a record whose value is encrypted."""
_NO_LIMIT: Final = 2**31


def _bound_to(header: bytes, key: bytes | None) -> bytes:
    """What a value cannot be moved away from: its data key, and the key of its record."""
    return header + (b"\0" if key is None else b"\1" + key)


def encrypted(records: Any, ring: KeyRing) -> bytes:
    """A produced batch with its values encrypted; records without a value have none afterwards either.

    Raises KafkaError for what is no batch, and for a record that has the header of encryption already.
    """
    header = validate_produced(records, _NO_LIMIT)
    plain = list(decode_records(memoryview(records)[: header.size_bytes]))
    if any(name == HEADER for record in plain for name, _ in record.headers):
        raise KafkaError(ErrorCode.INVALID_RECORD, f"Producers do not send the header {HEADER}.")
    key = ring.data_key(len(plain))

    def encrypt(record: Record) -> Record:
        if record.value is None:
            return record
        nonce = ring.nonce()
        value = nonce + key.cipher.encrypt(nonce, record.value, _bound_to(key.header, record.key))
        return record._replace(value=value, headers=[*record.headers, (HEADER, key.header)])

    return _encoded(header, [encrypt(record) for record in plain])


def decrypted(records: Any, ring: KeyRing, *, plain_passes: bool) -> bytes | memoryview:
    """Fetched batches with their values as they were produced; a batch that is cut off at the end is left out.

    Raises UnknownKeyError, DecryptionError, and KafkaError for what is no batch.
    """
    parts: list[bytes | memoryview] = []
    changed = False
    for header, batch in iterate_batches(records):
        read = None if header.is_control else _decrypted_batch(header, batch, ring, plain_passes)
        changed = changed or read is not None
        parts.append(batch if read is None else read)
    return b"".join(parts) if changed else records


def _decrypted_batch(header: RecordBatchHeader, batch: memoryview, ring: KeyRing, plain_passes: bool) -> bytes | None:
    found = list(decode_records(batch))
    read = [_decrypt(record, ring.cipher_of, plain_passes) for record in found]
    if all(one is other for one, other in zip(found, read, strict=True)):
        return None
    return _encoded(header, read)


def _decrypt(record: Record, cipher_of: Callable[[bytes], Any], plain_passes: bool) -> Record:
    if record.value is None:
        return record
    header = next((content for name, content in record.headers if name == HEADER), None)
    if header is None:
        if plain_passes:
            return record
        raise DecryptionError("a value is not encrypted")
    if len(record.value) < NONCE_BYTES + TAG_BYTES:
        raise DecryptionError("an encrypted value is cut short")
    from cryptography.exceptions import InvalidTag

    nonce, value = record.value[:NONCE_BYTES], record.value[NONCE_BYTES:]
    try:
        plain = cipher_of(header).decrypt(nonce, value, _bound_to(header, record.key))
    except InvalidTag:
        raise DecryptionError("a value was changed since it was encrypted") from None
    return record._replace(value=plain, headers=[one for one in record.headers if one[0] != HEADER])


def _encoded(header: RecordBatchHeader, records: list[Record]) -> bytes:
    """A batch with the header's properties and other records at the same offsets."""
    return bytes(encode_batch_like(header, records, delete_horizon_ms=header.delete_horizon_ms))
