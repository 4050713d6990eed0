"""The filter `record_encryption`. klamm calls it on a request handler's thread, because it is `blocking`."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any, Final

from klamm import ErrorCode, KafkaError, ListenerContext, RequestContext, RequestFilter
from klamm.filters import RecordAccess, clear_records
from klamm.wire.api_keys import ApiKey
from klamm_filters.records.batches import decrypt, encrypt, refuse_header
from klamm_filters.records.encryption_settings import RecordEncryptionSettings
from klamm_filters.records.keys import DecryptionError, KeyRing, UnknownKeyError, call_for_keys, read_keys
from klamm_filters.records.refused_partitions import Refusal, RefusedPartitions
from klamm_filters.records.topic_names import TopicNames, first_match
from klamm_filters.refusals import Refusals

_FETCHES: Final = (ApiKey.FETCH, ApiKey.SHARE_FETCH)
_GROWN: Final = (
    "The batch exceeds max.message.bytes when it is encrypted: each record grows by about 120 bytes, and values do not"
    " compress. Send smaller batches, or allow larger ones for the topic."
)


class RecordEncryption(RequestFilter):
    """The filter `record_encryption`. In the configured topics, it encrypts produced values and decrypts fetched
    values.

    Fetched values are the values in Fetch and ShareFetch. A value is bound to the name of its topic. Producers may not
    send the header of encryption to any topic. A value that cannot be encrypted is not written, and a value that cannot
    be decrypted is not sent: the partition gets an error instead.
    """

    settings: RecordEncryptionSettings

    def __init__(self, settings: RecordEncryptionSettings) -> None:
        super().__init__(settings)
        self._names = TopicNames()
        self._is_wanted = first_match((settings.topics,))
        self._plain_passes = settings.plain_values == "pass"
        self._refusals = Refusals("record_encryption")
        self._refused = RefusedPartitions(self._refusals.note)
        self._ring: KeyRing | None = None
        self._host: ListenerContext | None = None
        self._records: RecordAccess | None = None

    def open(self, listener: ListenerContext) -> None:
        self._host = listener
        self._records = RecordAccess(listener)
        self._names.open(listener, self)
        self._refusals.open(listener)
        self.reload()

    def reload(self) -> None:
        """Read the keys again. From now on the new current key encrypts new values."""
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
        # The filter decompresses records, and reads them from a file.
        return True

    def on_request(self, message: Any, context: RequestContext) -> Any:
        if context.api_key != ApiKey.PRODUCE:
            return message
        return self._refused.take_out(message, context, partial(self._encrypt, context))

    def _parts(self) -> tuple[RecordAccess, KeyRing]:
        assert self._records is not None
        assert self._ring is not None
        return self._records, self._ring

    def _encrypt(self, context: RequestContext, topic: Any, partition: Any) -> Refusal | None:
        access, ring = self._parts()
        try:
            name = self._names.known(topic.name, topic.topic_id, context)
            with access.of(partition) as records:
                if self._is_wanted(name) is None:
                    refuse_header(records)
                else:
                    encrypt(records, name, ring)
        except KafkaError as error:
            return Refusal(error.error_code, error.message or "The records cannot be read.")
        return None

    def on_response(self, response: Any, context: RequestContext) -> Any:
        if context.api_key == ApiKey.PRODUCE:
            self._explain(response, context)
            return self._refused.put_back(response, context)
        if context.api_key not in _FETCHES:
            self._names.learn(response)
            return response
        for topic in response.responses:
            # Without a name, the topic may be an encrypted one. Decryption would need the name, so such a partition
            # fails.
            name = self._names.find(getattr(topic, "topic", ""), topic.topic_id, context)
            if name is not None and self._is_wanted(name) is None:
                continue
            for partition in topic.partitions:
                # A partition without new records, or with the broker's error, has nothing to decrypt.
                if partition.records is not None and partition.records != b"":
                    self._decrypt(name, partition, context)
        return response

    def _explain(self, response: Any, context: RequestContext) -> None:
        """Replace the message of MESSAGE_TOO_LARGE: encryption has made the batch larger than the client sent it."""
        for topic in response.responses:
            for partition in topic.partition_responses:
                if partition.error_code == ErrorCode.MESSAGE_TOO_LARGE:
                    name = self._names.find(topic.name, topic.topic_id, context)
                    if name is not None and self._is_wanted(name) is not None:
                        partition.error_message = _GROWN

    def _decrypt(self, topic: str | None, partition: Any, context: RequestContext) -> None:
        access, ring = self._parts()
        code = ErrorCode.CORRUPT_MESSAGE
        try:
            if topic is not None:
                with access.of(partition) as records:
                    decrypt(records, topic, ring, plain_passes=self._plain_passes)
                return
            code, why = ErrorCode.UNKNOWN_TOPIC_ID, "The topic id is not known here yet."
        except UnknownKeyError as error:
            # Consumers try again, because the key may come with the next SIGHUP.
            code, why = ErrorCode.UNKNOWN_SERVER_ERROR, str(error)
        except DecryptionError as error:
            why = str(error)
        except KafkaError as error:
            why = error.message or error.error_code.name
        clear_records(partition)
        partition.error_code = int(code)
        if context.api_key == ApiKey.SHARE_FETCH:
            partition.acquired_records = []
        self._refusals.note(context, why)
