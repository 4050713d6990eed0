"""`KeyRing`: the key encryption keys, and the data keys. A key encryption key encrypts (wraps) data keys.

A data key encrypts values. Its wrapped form travels in the header of each record.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from klamm.runtime import Clock

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

VERSION: Final = 2
AES_256_GCM: Final = 1
"""The algorithm for values, with data keys of 32 bytes, nonces of 12 bytes and tags of 16 bytes."""
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
_DATA_KEY_BYTES: Final = 32
_KEY_SIZES: Final = (16, 24, 32)
_MAX_ID_BYTES: Final = 255
_HEAD_BYTES: Final = 3
"""The fields of a header before the key id: version, algorithm, length of the id."""
_WRAPPED_BYTES: Final = NONCE_BYTES + _DATA_KEY_BYTES + TAG_BYTES
_WRAPS: Final = b"klamm data key"
_KEPT_DATA_KEYS: Final = 1000


class UnknownKeyError(Exception):
    """Raised if a value was encrypted with a key that is not configured."""


class DecryptionError(Exception):
    """Raised if a value was not encrypted with one of the keys, or was changed afterwards."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Key encryption keys by id. `current` is the key that wraps new data keys."""

    current: str
    by_id: Mapping[str, bytes]


def checked_keys(content: Mapping[str, Any]) -> Keys:
    """Return the keys in the content of a file, or in the result of a function.

    The content has `current`, and `keys` as bytes or base64. Raises ValueError, whose text contains no key.
    """
    unknown = set(content) - {"current", "keys"}
    if unknown:
        raise ValueError(f"unknown key {sorted(unknown)[0]}: the keys are `current` and `keys`")
    current, keys = content.get("current"), content.get("keys")
    if not isinstance(keys, Mapping) or not keys:
        raise ValueError("there are no keys: the table `keys` must map the id of each key to its 32 bytes in base64")
    by_id = {}
    for key_id, key in keys.items():
        if not isinstance(key_id, str) or not 0 < len(key_id.encode()) <= _MAX_ID_BYTES:
            raise ValueError(f"the id of a key must have 1 to {_MAX_ID_BYTES} bytes")
        by_id[key_id] = _key_bytes(key_id, key)
    if not isinstance(current, str) or current not in by_id:
        raise ValueError("`current` must be the id of one of the keys")
    return Keys(current, by_id)


def _key_bytes(key_id: str, key: object) -> bytes:
    if isinstance(key, str):
        try:
            key = base64.b64decode(key, validate=True)
        except binascii.Error:
            raise ValueError(f'the key "{key_id}" is not base64') from None
    if not isinstance(key, bytes) or len(key) not in _KEY_SIZES:
        raise ValueError(f'the key "{key_id}" must have 16, 24 or 32 bytes')
    return key


def read_keys(path: Path) -> Keys:
    """Return the keys in a file. Raises OSError, ValueError."""
    # Imported here, because most servers have no such file.
    import tomli

    try:
        return checked_keys(tomli.loads(path.read_text(encoding="utf-8")))
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is not UTF-8") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def call_for_keys(function: str) -> Keys:
    """Return the keys from `module:function`. Raises the errors of the function, and ValueError."""
    module, _, name = function.partition(":")
    try:
        return checked_keys(getattr(importlib.import_module(module), name)())
    except ValueError as error:
        raise ValueError(f"{function}: {error}") from None


class DataKey:
    """A key that encrypts values. `header` goes into each record, and has the wrapped key for decryption."""

    def __init__(self, header: bytes, cipher: AESGCM, made_ns: int) -> None:
        self.header = header
        self.cipher = cipher
        self.made_ns = made_ns
        self.used = 0


class KeyRing:
    """All keys of one filter. It creates, wraps and unwraps data keys. Any thread may call it."""

    def __init__(
        self, keys: Keys, clock: Clock, random_bytes: Callable[[int], bytes], max_records: int, max_age_ms: int
    ) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._cipher = AESGCM
        self._current = keys.current
        self._wrapping = {key_id: AESGCM(key) for key_id, key in keys.by_id.items()}
        self._clock, self._random_bytes = clock, random_bytes
        self._max_records, self._max_age_ns = max_records, max_age_ms * 1_000_000
        # Protects the newest data key with its count, and the cache of unwrapped keys.
        self._lock = threading.Lock()
        self._newest: DataKey | None = None
        self._unwrapped: OrderedDict[bytes, AESGCM] = OrderedDict()

    def data_key(self, values: int) -> DataKey:
        """Return a data key that may encrypt `values` further values, and count them."""
        now_ns = self._clock.monotonic_ns()
        with self._lock:
            key = self._newest
            if key is None or key.used + values > self._max_records or now_ns - key.made_ns >= self._max_age_ns:
                key = self._newest = self._new(now_ns)
            key.used += values
            return key

    def _new(self, now_ns: int) -> DataKey:
        data_key, nonce, key_id = self._random_bytes(_DATA_KEY_BYTES), self.nonce(), self._current.encode()
        head = bytes([VERSION, AES_256_GCM, len(key_id)]) + key_id
        wrapped = self._wrapping[self._current].encrypt(nonce, data_key, _WRAPS + head)
        return DataKey(head + nonce + wrapped, self._cipher(data_key), now_ns)

    def nonce(self) -> bytes:
        """Return a random nonce. A data key encrypts so few values that two equal nonces are very unlikely."""
        return self._random_bytes(NONCE_BYTES)

    def cipher_of(self, header: bytes) -> AESGCM:
        """Return the cipher for values of records with this header.

        Raises UnknownKeyError, DecryptionError.
        """
        with self._lock:
            cipher = self._unwrapped.get(header)
        return cipher if cipher is not None else self._unwrap(header)

    def _unwrap(self, header: bytes) -> AESGCM:
        from cryptography.exceptions import InvalidTag

        if header[:2] != bytes([VERSION, AES_256_GCM]) or len(header) < _HEAD_BYTES:
            raise DecryptionError("the header of the encryption cannot be read")
        head_bytes = _HEAD_BYTES + header[_HEAD_BYTES - 1]
        if len(header) != head_bytes + _WRAPPED_BYTES:
            raise DecryptionError("the header of the encryption cannot be read")
        head, wrapped = header[:head_bytes], header[head_bytes:]
        key_id = head[_HEAD_BYTES:].decode(errors="replace")
        wrapping = self._wrapping.get(key_id)
        if wrapping is None:
            raise UnknownKeyError(f'there is no key "{key_id}"')
        try:
            data_key = wrapping.decrypt(wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:], _WRAPS + head)
        except InvalidTag:
            raise DecryptionError(f'the key "{key_id}" does not decrypt the data key') from None
        cipher = self._cipher(data_key)
        with self._lock:
            self._unwrapped[header] = cipher
            while len(self._unwrapped) > _KEPT_DATA_KEYS:
                self._unwrapped.popitem(last=False)
        return cipher
