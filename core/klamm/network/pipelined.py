"""`PipelinedLifecycle`: the lifecycle of channels whose requests start while earlier ones wait for their answers.

Handler sets that forward requests use it (`ApiSet.pipelined`). Answers are sent in the order of the requests. An answer
may be sent while it still arrives from the other server.

mypyc compiles this module: see "Compiled" in docs/design.md before a change.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from klamm.api.forwarding import ResponseStream
from klamm.api.observer import RequestOutcome
from klamm.network.answer_queue import AnswerQueue, Entry, ReadyAnswer
from klamm.network.channel import ChannelState, KafkaChannel, MuteEvent, MuteState
from klamm.network.channel_link import ChannelLink
from klamm.network.lifecycle import CallSoon, ChannelLifecycle
from klamm.network.pipes import Pipes
from klamm.network.runtime import ListenerRuntime
from klamm.network.selector import Selector
from klamm.requests.pending import GO_ON, CloseConnection, PendingRequest
from klamm.requests.pipeline import RequestPipeline
from klamm.wire.api_keys import ApiKey
from klamm.wire.chunks import Buffer, Chunk, close_chunks

_SASL: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
_MAY_THROTTLE: Final = frozenset({MuteState.MUTED, MuteState.MUTED_AND_RESPONSE_PENDING})


class PipelinedLifecycle(ChannelLifecycle):
    """The lifecycle of pipelined channels. A channel stays on its processor from its first request on."""

    def __init__(
        self, runtime: ListenerRuntime, selector: Selector, pipeline: RequestPipeline, call_soon: CallSoon
    ) -> None:
        super().__init__(runtime, selector, pipeline, call_soon)
        self._pipes = Pipes()

    def _take_up(self, channel: KafkaChannel, frame: Buffer, served: list[PendingRequest]) -> list[Chunk] | None:
        answers = channel.answers
        if answers is None:
            answers = channel.answers = AnswerQueue()
            channel.connection.link = ChannelLink(
                channel, answers, self._selector, self._call_soon, self._abort, self._authentication
            )
        elif answers.pending and channel.authenticator is not None and _api_key(frame) in _SASL:
            # This server answers a re-authentication itself, after the answers to all earlier requests.
            channel.receive.frames.appendleft(frame)  # type: ignore[arg-type]
            self._mute_for(channel, answers, answers.pending[-1])
            return None
        before = len(served)
        chunks = super()._take_up(channel, frame, served)
        if chunks is None or not (answers.pending or answers.streamed):
            return chunks
        entry = ReadyAnswer(chunks, served[before:])
        del served[before:]
        answers.add(entry)
        if answers.is_full and channel.mute_state is MuteState.NOT_MUTED:
            self._wait_for_room(channel, answers, entry)
        return None

    def _park(self, channel: KafkaChannel, request: PendingRequest) -> None:
        answers = channel.answers
        assert answers is not None
        answers.add(request)
        channel.in_flight = answers.oldest
        # Later requests must not overtake a request that runs on a handler thread or that a filter holds. They must
        # also wait for the answer to a login, which determines their principal.
        if not request.inline or request.result is GO_ON or request.context.api_key in _SASL:
            self._mute_for(channel, answers, request)
        elif answers.is_full:
            self._wait_for_room(channel, answers, request)

    def _wait_for_room(self, channel: KafkaChannel, answers: AnswerQueue, entry: Entry) -> None:
        # If the client has disconnected, its remaining requests start at once, because no more can follow.
        if channel.state is not ChannelState.CLOSING:
            self._mute_for(channel, answers, entry)
            answers.waits_for_room = True

    def _mute_for(self, channel: KafkaChannel, answers: AnswerQueue, entry: Entry) -> None:
        channel.on_mute_event(MuteEvent.MUTE)
        channel.on_mute_event(MuteEvent.REQUEST_RECEIVED)
        answers.muted_for = entry

    @staticmethod
    def _unmute(channel: KafkaChannel, answers: AnswerQueue) -> None:
        answers.muted_for, answers.waits_for_room = None, False
        channel.on_mute_event(MuteEvent.RESPONSE_SENT)
        channel.maybe_unmute()

    def answered(self, request: PendingRequest) -> None:
        """Process the answer of a request. It is sent after the answers to earlier requests."""
        channel: KafkaChannel = request.channel
        self._count_handler_time(channel, request)
        answers = channel.answers
        if channel.state is ChannelState.CLOSED or answers is None:
            self._pipeline.drop(request)
            return
        try:
            if request.result is GO_ON:
                self._pipeline.go_on(request)
            else:
                answers.delivered.add(request)
                self._flush(channel, answers)
        except Exception as error:
            self.fail(channel, error)

    def sent(self, channel: KafkaChannel) -> None:
        """Handle the end of a send that had to wait."""
        super().sent(channel)
        if channel.answers is not None:
            self._flush(channel, channel.answers)

    def _flush(self, channel: KafkaChannel, answers: AnswerQueue) -> None:
        """Send the next answers in order, until one has not arrived or the client accepts no more bytes."""
        while channel.send is None and channel.state is not ChannelState.CLOSED:
            entry = answers.take_next()
            if entry is None:
                break
            if isinstance(entry, ReadyAnswer):
                self._send(channel, entry.chunks, entry.requests)
            else:
                self._answer(channel, entry)
            if answers.muted_for is entry:
                self._unmute(channel, answers)
        if channel.state is ChannelState.CLOSED:
            return
        channel.in_flight = answers.oldest
        self.proceed(channel)
        link = channel.connection.link
        if isinstance(link, ChannelLink):
            link.notify_drained()

    def _answer(self, channel: KafkaChannel, request: PendingRequest) -> None:
        request.dequeued_ns = self._clock.monotonic_ns() if request.received_ns else 0
        if request.context.throttle_time_ms:
            if channel.mute_state is MuteState.NOT_MUTED:
                channel.on_mute_event(MuteEvent.MUTE)
            if channel.mute_state in _MAY_THROTTLE:
                self._start_throttling(channel, request.context.throttle_time_ms)
        result: Any = request.result
        channel.receive.release(request.size_bytes)
        if isinstance(result, CloseConnection):
            self._pipeline.end((request,), RequestOutcome.FAILED)
            self._close_for(channel, result.reason, result.last_bytes)
        elif not isinstance(result, list):
            self._pipeline.end((request,), RequestOutcome.NO_ANSWER)
        elif isinstance(result[-1], ResponseStream) and channel.state is not ChannelState.CLOSING:
            self._stream(channel, request, result)
        else:
            self._send(channel, result, [request])

    # ---- answers that are sent while they arrive

    def _stream(self, channel: KafkaChannel, request: PendingRequest, chunks: list[Any]) -> None:
        stream: ResponseStream = chunks[-1]
        assert channel.answers is not None
        channel.answers.streamed = request
        self._selector.send(channel, chunks[:-1])
        fill = self._pipes.fill if channel.transport.may_splice else None
        stream.attach(partial(self._send_part, channel, stream), partial(self._abort, channel), fill)

    def _send_part(self, channel: KafkaChannel, stream: ResponseStream, data: Chunk) -> None:
        answers = channel.answers
        if answers is None or answers.streamed is None or channel.state is ChannelState.CLOSED:
            close_chunks([data])
            return
        try:
            if stream.remaining:
                if channel.state is ChannelState.CLOSING:
                    close_chunks([data])
                else:
                    self._selector.send(channel, [data])
                return
            request, answers.streamed = answers.streamed, None
            self._send(channel, [data], [request])
            channel.in_flight = answers.oldest
            # The next turn flushes, because a flush within this call may call this method again.
            self._call_soon(channel, self._flush_soon, channel)
        except Exception as error:
            self.fail(channel, error)

    def _flush_soon(self, channel: KafkaChannel) -> None:
        if channel.state is not ChannelState.CLOSED and channel.answers is not None:
            self._flush(channel, channel.answers)

    def _abort(self, channel: KafkaChannel, reason: str) -> None:
        if channel.state is not ChannelState.CLOSED:
            self._close_for(channel, reason, b"")

    # ---- the end of a channel

    def close(self, channel: KafkaChannel, reason: str) -> None:
        """Close the channel like the base class, and end all requests that wait for their answers."""
        answers = channel.answers
        if channel.state is ChannelState.CLOSED or answers is None:
            super().close(channel, reason)
            return
        channel.in_flight = None
        super().close(channel, reason)
        if answers.streamed is not None:
            self._pipeline.end((answers.streamed,), RequestOutcome.LOST_AFTER)
        for entry in answers.pending:
            if isinstance(entry, ReadyAnswer):
                if entry.requests:
                    self._pipeline.end(entry.requests, RequestOutcome.LOST_AFTER)
                continue
            channel.receive.release(entry.size_bytes)
            if entry in answers.delivered:
                has_answer = not isinstance(entry.result, CloseConnection)
                entry.outcome = entry.outcome or (RequestOutcome.LOST_AFTER if has_answer else None)
                self._pipeline.drop(entry)
            else:
                self._pipeline.lose(entry)
        answers.pending.clear()

    def _maybe_finish(self, channel: KafkaChannel) -> None:
        # The other server executes forwarded requests even after this connection has closed, and no client is left to
        # receive the answers.
        answers = channel.answers
        if channel.state is ChannelState.CLOSING and answers is not None and answers.waits_for_room:
            self._unmute(channel, answers)
            self.advance(channel)
        elif channel.state is not ChannelState.CLOSING or answers is None or answers.muted_for is not None:
            super()._maybe_finish(channel)
        elif not channel.receive.frames and not channel.waiting_for_turn:
            self.close(channel, channel.close_reason)


def lifecycle_of(runtime: ListenerRuntime) -> type[ChannelLifecycle]:
    """Return the class that serves the channels of a listener: it depends on the handler set."""
    return PipelinedLifecycle if runtime.api_set.pipelined else ChannelLifecycle


def _api_key(frame: Buffer) -> int:
    return int.from_bytes(frame[:2], "big", signed=True)
