"""Answers to Produce that wait until the records are on the disk, for topics with `flush.messages`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from klamm import KafkaError, RequestContext
from klamm.wire.messages.produce import PartitionProduceResponse, ProduceResponse
from klamm_broker.handlers.countdown import call_after
from klamm_broker.log.flusher import LogFlusher
from klamm_broker.log.partition_log import PartitionLog


class Unflushed(NamedTuple):
    """A batch that was appended and must be durable before its producer gets the response."""

    log: PartitionLog
    end_offset: int
    answer: PartitionProduceResponse


def answer_when_flushed(
    flusher: LogFlusher, context: RequestContext, response: ProduceResponse, unflushed: Sequence[Unflushed]
) -> None:
    """Send the response once all batches are durable. Batches that cannot be made durable get an error."""
    done = call_after(len(unflushed), lambda: context.respond(response))

    def waiter(answer: PartitionProduceResponse) -> Callable[[KafkaError | None], None]:
        def flushed(error: KafkaError | None) -> None:
            if error is not None:
                answer.error_code = error.error_code
                answer.error_message = error.message
                answer.base_offset = answer.log_start_offset = answer.log_append_time_ms = -1
            done()

        return flushed

    for each in unflushed:
        flusher.request(each.log, each.end_offset, waiter(each.answer))
