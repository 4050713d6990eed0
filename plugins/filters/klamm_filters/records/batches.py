"""Encryption and decryption of the values in a batch, for `RecordEncryption` on the thread that runs the request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from klamm import ErrorCode, KafkaError
from klamm.filters import PartitionRecords
from klamm.wire.records import Record
from klamm_filters.records.keys import NONCE_BYTES, TAG_BYTES, DecryptionError, KeyRing

HEADER: Final = "klamm-encryption"
"""The header of a record with an encrypted value."""
_HEADER_BYTES: Final = HEADER.encode()
_PURPOSE: Final = b"klamm record value"


def _bound_to(header: bytes, topic: str, key: bytes | None) -> bytes:
    """Return the data to which encryption binds a value.

    These are: format, algorithm, key id and data key, which the header has; the topic; and the record's key. A change
    of any of them makes the decryption fail. Each field of variable length follows its length.
    """
    name = topic.encode()
    lengths = len(header).to_bytes(4, "big"), len(name).to_bytes(4, "big")
    return b"".join((_PURPOSE, *lengths, header, name, b"\0" if key is None else b"\1" + key))


def refuse_header(records: PartitionRecords) -> None:
    """Raise KafkaError if a produced record has the header of encryption.

    Most batches do not contain the header's name anywhere. A quick search finds the others, whose records are then
    read.
    """
    if records.contains(_HEADER_BYTES):
        for record in records:
            _refuse_header(record)


def _refuse_header(record: Record) -> None:
    if any(name == HEADER for name, _ in record.headers):
        raise KafkaError(ErrorCode.INVALID_RECORD, f"Producers must not send the header {HEADER}.")


def encrypt(records: PartitionRecords, topic: str, ring: KeyRing) -> None:
    """Encrypt the values of a produced batch. Null values stay null.

    Raises KafkaError for an invalid batch, and for a record that already has the header of encryption.
    """
    key = ring.data_key(records.count)

    def encrypted(record: Record) -> Record:
        _refuse_header(record)
        if record.value is None:
            return record
        nonce = ring.nonce()
        value = nonce + key.cipher.encrypt(nonce, record.value, _bound_to(key.header, topic, record.key))
        return record._replace(value=value, headers=[*record.headers, (HEADER, key.header)])

    records.change(encrypted)


def decrypt(records: PartitionRecords, topic: str, ring: KeyRing, *, plain_passes: bool) -> None:
    """Restore the values of fetched batches as they were produced.

    Raises UnknownKeyError, DecryptionError, and KafkaError for an invalid batch.
    """
    records.change(lambda record: _decrypted(record, topic, ring.cipher_of, plain_passes))


def _decrypted(record: Record, topic: str, cipher_of: Callable[[bytes], Any], plain_passes: bool) -> Record:
    if record.value is None:
        return record
    for name, content in record.headers:
        if name == HEADER:
            header = content or b""
            break
    else:
        if plain_passes:
            return record
        raise DecryptionError("a value is not encrypted")
    if len(record.value) < NONCE_BYTES + TAG_BYTES:
        raise DecryptionError("an encrypted value is cut short")
    from cryptography.exceptions import InvalidTag

    nonce, value = record.value[:NONCE_BYTES], record.value[NONCE_BYTES:]
    try:
        plain = cipher_of(header).decrypt(nonce, value, _bound_to(header, topic, record.key))
    except InvalidTag:
        raise DecryptionError("a value was changed, or written to another topic or key") from None
    return record._replace(value=plain, headers=[one for one in record.headers if one[0] != HEADER])
