"""`SilentTransport`: the transport of a connection that a test plays itself."""

from __future__ import annotations

from collections.abc import Sequence

from klamm.api.transport import WOULD_BLOCK, Interest, TransportLayer
from klamm.shared.principal import ANONYMOUS, KafkaPrincipal
from klamm.wire.chunks import Buffer


class SilentTransport(TransportLayer):
    """Receives nothing, and takes everything that is sent; `proved` is the principal that it proves."""

    def __init__(self, proved: KafkaPrincipal = ANONYMOUS) -> None:
        self._principal = proved

    @property
    def principal(self) -> KafkaPrincipal:
        """Return the principal that the constructor was given."""
        return self._principal

    def handshake(self) -> Interest:
        """Done at once."""
        return Interest.NONE

    def read_into(self, buffer: memoryview) -> int:
        """There is nothing."""
        return WOULD_BLOCK

    def write(self, chunks: Sequence[Buffer], more: bool = False) -> int:
        """Everything is written."""
        return sum(len(chunk) for chunk in chunks)

    def send_file(self, descriptor: int, position: int, count: int) -> int:
        """Everything is written."""
        return count

    def close(self) -> None:
        """Nothing to close."""
