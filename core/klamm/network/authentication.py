"""The step from a finished handshake to READY, and SASL frames on a READY channel (KIP-368)."""

from __future__ import annotations

from struct import Struct
from typing import Final

from klamm.contracts import Buffer
from klamm.network.channel import ChannelState, KafkaChannel
from klamm.network.dispatcher import InvalidRequestError
from klamm.network.observation import Observation
from klamm.network.send import Chunk

_SIZE: Final = Struct(">i")


def authenticate(channel: KafkaChannel) -> tuple[list[Chunk], str | None]:
    """Give one received frame, if any, to the authenticator; the frames to send and the reason of a failure.

    A channel without an authenticator, or whose authenticator is complete, becomes READY.
    """
    authenticator = channel.authenticator
    reply: list[Chunk] = []
    if authenticator is None:
        channel.connection.principal = channel.transport.principal
        channel.move(ChannelState.READY)
        return reply, None
    if not authenticator.complete and channel.receive.frames:
        frame = channel.receive.frames.popleft()
        channel.receive.release(len(frame))
        step = authenticator.receive(frame)
        reply = _with_sizes(step.send)
        if step.failed is not None:
            channel.move(ChannelState.AUTHENTICATION_FAILED)
            return reply, step.failed
    if authenticator.complete:
        channel.connection.principal = authenticator.principal
        channel.session_expires_ns = authenticator.session_expires_ns
        channel.move(ChannelState.READY)
    return reply, None


def intercept(
    channel: KafkaChannel, frame: Buffer, now_ns: int, observation: Observation | None = None
) -> list[Chunk] | None:
    """On a READY channel: the answer to a frame that belongs to the authenticator, or None to serve it.

    Raises InvalidRequestError when the session has expired (the channel is closed on its next request, as Kafka does)
    or re-authentication fails.
    """
    authenticator = channel.authenticator
    assert authenticator is not None
    if not authenticator.reauthenticates(int.from_bytes(frame[:2], "big", signed=True)):
        if channel.session_expires_ns is not None and now_ns > channel.session_expires_ns:
            if observation is not None:
                observation.session_expired(channel.connection)
            raise InvalidRequestError("the session has expired and was not renewed")
        return None
    step = authenticator.receive(frame)
    if step.failed is not None:
        if observation is not None:
            observation.authentication_failed(channel.connection, step.failed, again=True)
        raise InvalidRequestError(f"re-authentication failed: {step.failed}")
    if step.complete:
        channel.connection.principal = authenticator.principal
        channel.session_expires_ns = authenticator.session_expires_ns
        if observation is not None:
            observation.authenticated(channel.connection, again=True)
    return _with_sizes(step.send)


def _with_sizes(frames: object) -> list[Chunk]:
    joined = b"".join(_SIZE.pack(len(frame)) + bytes(frame) for frame in frames)  # type: ignore[attr-defined]
    return [joined] if joined else []
