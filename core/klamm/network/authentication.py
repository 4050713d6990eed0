"""What goes to the authenticator of a channel, and in what form its answers go out."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from klamm.api.authentication import AuthenticationStep
from klamm.api.transport import Buffer
from klamm.metrics.connections import ConnectionCounts
from klamm.network.channel import KafkaChannel
from klamm.network.send import Chunk
from klamm.requests.dispatcher import InvalidRequestError
from klamm.requests.observers import RequestObservers

_SIZE: Final = Struct(">i")


def intercept(
    channel: KafkaChannel,
    frame: Buffer,
    now_ns: int,
    counts: ConnectionCounts,
    observation: RequestObservers | None = None,
) -> AuthenticationStep | None:
    """On a READY channel: what comes of a frame that belongs to the authenticator, or None to serve it (KIP-368).

    Raises InvalidRequestError when the session has expired: the channel is closed on its next request, as Kafka does.
    """
    authenticator = channel.authenticator
    assert authenticator is not None
    if not authenticator.reauthenticates(int.from_bytes(frame[:2], "big", signed=True)):
        if channel.session_expires_ns is not None and now_ns > channel.session_expires_ns:
            counts.expired.add()
            if observation is not None:
                observation.session_expired(channel.connection)
            raise InvalidRequestError("the session has expired and was not renewed")
        return None
    return authenticator.receive(frame)


def with_sizes(frames: Sequence[Buffer]) -> list[Chunk]:
    """Frames as they go out, in one piece; an empty list for none."""
    joined = b"".join(_SIZE.pack(len(frame)) + bytes(frame) for frame in frames)
    return [joined] if joined else []
