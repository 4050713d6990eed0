"""`SilentTransport`: the transport of a connection that has no socket, for tests."""

from __future__ import annotations

from collections.abc import Sequence

from klamm.api.transport import WOULD_BLOCK, Interest, TransportLayer
from klamm.shared.principal import ANONYMOUS, KafkaPrincipal
from klamm.wire.chunks import Buffer


class SilentTransport(TransportLayer):
    """A transport that receives nothing and accepts all bytes; `proved` is the principal that it reports."""

    def __init__(self, proved: KafkaPrincipal = ANONYMOUS) -> None:
        self._principal = proved

    @property
    def principal(self) -> KafkaPrincipal:
        """Return the principal that was passed to the constructor."""
        return self._principal

    def handshake(self) -> Interest:
        """Return NONE, because the handshake is done at once."""
        return Interest.NONE

    def read_into(self, buffer: memoryview) -> int:
        """Return WOULD_BLOCK, because no byte ever arrives."""
        return WOULD_BLOCK

    def write(self, chunks: Sequence[Buffer], more: bool = False) -> int:
        """Return the number of bytes, as if all were written."""
        return sum(len(chunk) for chunk in chunks)

    def send_file(self, descriptor: int, position: int, count: int) -> int:
        """Return `count`, as if all bytes were written."""
        return count

    def close(self) -> None:
        """Do nothing, because there is no socket."""
