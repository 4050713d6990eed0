"""The filter `record_encryption`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from klamm import ErrorCode, KafkaError, ListenerContext, RequestContext, RequestFilter
from klamm.wire.api_keys import ApiKey
from klamm_filters.records.batches import decrypted, encrypted
from klamm_filters.records.encryption_settings import RecordEncryptionSettings
from klamm_filters.records.keys import DecryptionError, KeyRing, UnknownKeyError, call_for_keys, read_keys
from klamm_filters.records.refused_partitions import Refusal, RefusedPartitions
from klamm_filters.records.topic_names import TopicNames, first_match
from klamm_filters.refusals import Refusals

_FETCHES: Final = (ApiKey.FETCH, ApiKey.SHARE_FETCH)
_BYTES: Final = (bytes, bytearray, memoryview)


class RecordEncryption(RequestFilter):
    """Encrypts the values of Produce and decrypts those of Fetch and ShareFetch.

    A value that cannot be encrypted is not written, and one that cannot be decrypted is not sent: the partition gets an
    error instead.
    """

    settings: RecordEncryptionSettings

    def __init__(self, settings: RecordEncryptionSettings) -> None:
        super().__init__(settings)
        self._names = TopicNames()
        self._is_wanted = first_match((settings.topics,))
        self._is_for_all = "*" in settings.topics
        self._plain_passes = settings.plain_values == "pass"
        self._refused = RefusedPartitions("record_encryption")
        self._refusals = Refusals("record_encryption")
        self._ring: KeyRing | None = None
        self._host: ListenerContext | None = None

    def open(self, listener: ListenerContext) -> None:
        self._host = listener
        self._names.open(listener, self)
        self._refusals.open(listener)
        self.reload()

    def reload(self) -> None:
        """Read the keys again; new values are encrypted with the current one from now on."""
        settings, host = self.settings, self._host
        assert host is not None
        if settings.keys_function is not None:
            keys = call_for_keys(settings.keys_function)
        else:
            if settings.keys_file is None:
                raise ValueError("record_encryption has no keys: set keys_file or keys_function")
            keys = read_keys(settings.keys_file)
        services = host.services
        self._ring = KeyRing(
            keys, services.clock, services.random_bytes, settings.data_key_max_records, settings.data_key_max_age_ms
        )

    @property
    def api_keys(self) -> Collection[int]:
        return (ApiKey.PRODUCE, *_FETCHES, *self._names.api_keys)

    @property
    def blocking(self) -> bool:
        # Records are unpacked, and read from a file.
        return True

    def on_request(self, message: Any, context: RequestContext) -> Any:
        if context.api_key != ApiKey.PRODUCE:
            return message
        ring = self._keys()

        def check(topic: Any, partition: Any) -> Refusal | None:
            refusal = self._encrypt(topic, partition, ring, context)
            if refusal is not None:
                self._refusals.note(context, refusal.message)
            return refusal

        return self._refused.take_out(message, context, check)

    def _keys(self) -> KeyRing:
        assert self._ring is not None
        return self._ring

    def _encrypt(self, topic: Any, partition: Any, ring: KeyRing, context: RequestContext) -> Refusal | None:
        try:
            if not self._is_for_all and self._is_wanted(self._names.known(topic.name, topic.topic_id, context)) is None:
                return None
            partition.records = encrypted(partition.records or b"", ring)
        except KafkaError as error:
            return Refusal(error.error_code, error.message or "The records cannot be read.")
        return None

    def on_response(self, response: Any, context: RequestContext) -> Any:
        if context.api_key == ApiKey.PRODUCE:
            return self._refused.put_back(response, context)
        if context.api_key not in _FETCHES:
            self._names.learn(response)
            return response
        ring = self._keys()
        for topic in response.responses:
            for partition in topic.partitions:
                partition.records = _in_memory(partition.records)
        for topic in response.responses:
            plain_passes = self._plain_passes or not self._may_be_wanted(topic, context)
            for partition in topic.partitions:
                if partition.records:
                    self._decrypt(partition, ring, context, plain_passes)
        return response

    def _may_be_wanted(self, topic: Any, context: RequestContext) -> bool:
        name = self._names.find(getattr(topic, "topic", ""), topic.topic_id, context)
        return name is None or self._is_wanted(name) is not None

    def _decrypt(self, partition: Any, ring: KeyRing, context: RequestContext, plain_passes: bool) -> None:
        try:
            partition.records = decrypted(partition.records, ring, plain_passes=plain_passes)
            return
        except UnknownKeyError as error:
            # Consumers try again: the key may come with the next SIGHUP.
            code, why = ErrorCode.UNKNOWN_SERVER_ERROR, str(error)
        except DecryptionError as error:
            code, why = ErrorCode.CORRUPT_MESSAGE, str(error)
        except KafkaError as error:
            code, why = ErrorCode.CORRUPT_MESSAGE, error.message or error.error_code.name
        partition.records = None
        partition.error_code = int(code)
        if context.api_key == ApiKey.SHARE_FETCH:
            partition.acquired_records = []
        self._refusals.note(context, why)


def _in_memory(records: Any) -> Any:
    """Bytes, also of a region of a file, which is closed."""
    if records is None or isinstance(records, _BYTES):
        return records
    try:
        return records.read(records.position, records.size_bytes)
    finally:
        records.close()
