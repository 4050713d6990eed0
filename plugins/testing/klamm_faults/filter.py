"""`FaultFilter`: applies the rules of the `FaultBook` to the requests of one listener.

klamm calls it on the thread that runs the request.
"""

from __future__ import annotations

import logging
from struct import Struct
from typing import Any, Final

from klamm import ErrorCode, KafkaError, ListenerContext, RequestContext, RequestFilter
from klamm.filters import Disconnect, EncodedResponse, Hold
from klamm.testing import HELPER_CLIENT_ID
from klamm.wire.api_keys import ApiKey
from klamm.wire.headers import response_header_size
from klamm.wire.messages.fetch import FetchResponse
from klamm.wire.named_entities import entities_of
from klamm_faults.book import SHARED_KEY, FaultBook
from klamm_faults.fault_settings import FaultsSettings
from klamm_faults.kinds import FaultKind
from klamm_faults.partition_errors import put_errors, take_out
from klamm_faults.rule import Fault

log = logging.getLogger("klamm.faults")

_SIZE_AND_ID: Final = Struct(">ii")
_STATE: Final = "klamm.faults"
_OVERTAKES: Final = "klamm.faults.overtakes"
_REFUSED: Final = "klamm.faults.refused"
_NO_LEADER: Final = -1
_FLIPPED: Final = bytes(255 - byte for byte in range(256))


class FaultFilter(RequestFilter):
    """The filter `faults`. It ignores requests of klamm's own test helpers.

    A fault that fires after the handler needs a request that expects a response.
    """

    def __init__(self, settings: FaultsSettings) -> None:
        super().__init__(settings)
        self.book = FaultBook()
        self._names: dict[bytes, str] = {}

    def open(self, listener: ListenerContext) -> None:
        self.book = listener.services.shared.once(SHARED_KEY, FaultBook)
        settings: FaultsSettings = self.settings
        self.book.seed = settings.seed
        for name, rule in settings.rules.items():
            self.book.put(name, rule)
        if settings.chaos:
            self.book.chaos()

    def on_request(self, message: Any, context: RequestContext) -> Any:
        if not self.book.faults or context.client_id == HELPER_CLIENT_ID:
            return message
        entities = entities_of(message, self._names.get)
        release = self.book.overtaken(context, entities)
        if release is not None:
            context.connection.state[_OVERTAKES] = release
            return message
        fault = self.book.choose(context, entities)
        if fault is None:
            return message
        log.info("listener=%s api=%s: %r", context.listener.name, context.api_name, fault)
        if not fault.kind.before:
            # One entry is enough: the requests of a connection run one after the other.
            context.connection.state[_STATE] = context.correlation_id, fault
            if fault.kind is FaultKind.PARTITION_ERROR:
                context.connection.state[_REFUSED] = take_out(message, fault.names, self._names.get)
            return message
        self.book.note(fault, context)
        if fault.kind is FaultKind.REORDER:
            return Hold(message, fault.rule.delay_ms, until=fault.reordering.wait(context))
        if fault.kind is FaultKind.DELAY:
            return Hold(message, fault.rule.delay_ms)
        if fault.kind is FaultKind.DISCONNECT:
            raise Disconnect(f"{fault!r}")
        raise KafkaError(fault.error)

    def on_response(self, response: Any, context: RequestContext) -> Any:
        if context.api_key == ApiKey.METADATA:
            self._learn(response)
        release = context.connection.state.pop(_OVERTAKES, None)
        if release is not None:
            release.release()
        correlation_id, fault = context.connection.state.get(_STATE, (0, None))
        if fault is None or correlation_id != context.correlation_id:
            return response
        del context.connection.state[_STATE]
        self.book.note(fault, context)
        return self._with_fault(fault, response, context)

    def _learn(self, response: Any) -> None:
        for broker in response.brokers:
            self.book.learn_node((broker.host, broker.port), broker.node_id)
        for topic in response.topics:
            if topic.name is not None:
                self._names[topic.topic_id] = topic.name

    def _with_fault(self, fault: Fault, response: Any, context: RequestContext) -> Any:
        kind = fault.kind
        if kind is FaultKind.SLOW:
            return Hold(response, fault.rule.delay_ms)
        if kind is FaultKind.ERROR_AFTER:
            raise KafkaError(fault.error)
        if kind is FaultKind.DISCONNECT_AFTER:
            raise Disconnect(f"{fault!r}")
        if kind is FaultKind.TRUNCATE:
            frame = _frame(response, context)
            raise Disconnect(f"{fault!r}", frame[: len(frame) // 2])
        if kind is FaultKind.CORRUPT:
            return _corrupted(response, context)
        if kind is FaultKind.STALE_METADATA:
            return _without_leaders(response)
        if kind is FaultKind.PARTITION_ERROR:
            refused = context.connection.state.pop(_REFUSED)
            put_errors(response, fault.error, fault.names, self._names.get, refused)
            return response
        # The last kind is THROTTLE. klamm mutes the connection for this time, as for a quota.
        response.throttle_time_ms = context.throttle_time_ms = fault.rule.delay_ms
        return response


def _frame(response: Any, context: RequestContext) -> bytes:
    body: bytes = response.encode(context.api_version)
    head = bytes(response_header_size(context.api_key, context.api_version) - 4)
    return _SIZE_AND_ID.pack(len(head) + len(body) + 4, context.correlation_id) + head + body


def _corrupted(response: Any, context: RequestContext) -> Any:
    """Return a response with invalid content.

    In a Fetch response, the last byte of the records is changed, so that the CRC is wrong. In others, each byte of the
    body is changed.
    """
    if not isinstance(response, FetchResponse):
        return EncodedResponse(response.encode(context.api_version).translate(_FLIPPED))
    for topic in response.responses:
        for partition in topic.partitions:
            records = partition.records
            if records is not None and not isinstance(records, (bytes, bytearray, memoryview)):
                region, records = records, records.read(records.position, records.size_bytes)
                region.close()
            if records:
                partition.records = bytes(records[:-1]) + bytes(records[-1:]).translate(_FLIPPED)
    return response


def _without_leaders(response: Any) -> Any:
    """Return a Metadata response in which no partition has a leader."""
    for topic in response.topics:
        for partition in topic.partitions:
            partition.leader_id = _NO_LEADER
            partition.error_code = int(ErrorCode.LEADER_NOT_AVAILABLE)
    return response
