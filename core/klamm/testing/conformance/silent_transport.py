"""`SilentTransport`: the transport of a connection that a test plays itself."""

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
        """Return the principal that the constructor was given."""
        return self._principal

    def handshake(self) -> Interest:
        """Return NONE: the handshake is done at once."""
        return Interest.NONE

    def read_into(self, buffer: memoryview) -> int:
        """Return WOULD_BLOCK: nothing ever arrives."""
        return WOULD_BLOCK

    def write(self, chunks: Sequence[Buffer], more: bool = False) -> int:
        """Everything is written."""
        return sum(len(chunk) for chunk in chunks)

    def send_file(self, descriptor: int, position: int, count: int) -> int:
        """Everything is written."""
        return count

    def close(self) -> None:
        """Do nothing: there is nothing to close."""
