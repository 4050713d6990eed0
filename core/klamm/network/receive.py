"""`NetworkReceive`, which splits received bytes into frames. A frame is a 4-byte big-endian size and that many bytes.

All channels of a processor share one buffer. One read may fill it with several frames; only an incomplete frame gets
its own buffer. A declared size costs no memory: large buffers are anonymous maps, whose pages the system allocates as
bytes arrive. Filling a map takes twice as long as filling memory that the process already has. So a connection that has
sent a complete large frame gets a `bytearray` for its next frames, unless a `MemoryPool` counts the bytes.

mypyc compiles this module: see "Compiled" in docs/design.md before a change.
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Final

from klamm.network.memory_pool import Claim, MemoryPool
from klamm.requests.limits import CHECKED_FROM_BYTES, RequestLimits
from klamm.wire.api_keys import find_spec

_SIZE: Final = Struct(">i")
_KEY: Final = Struct(">h")
_SIZE_AND_KEY_BYTES: Final = 6
_MAP_FROM_BYTES: Final = 64 * 1024
_POOLED_MAP_FROM_BYTES: Final = 16 * 1024
_STEP_BYTES: Final = 1024 * 1024
# The number of bytes of a large frame that one channel reads at once. Other channels of the processor wait meanwhile, a
# fraction of a ms.
_FAIR_READ_BYTES: Final = 512 * 1024
_LOW_READ_BYTES: Final = 4096
# The number of bytes that a system usually accepts for a connection that the server does not read.
_AT_HAND_UP_TO_BYTES: Final = 64 * 1024
_TRUST_UP_TO_BYTES: Final = 4 * 1024 * 1024
# The first two bytes of a TLS handshake: its content type and the major version.
_TLS_HANDSHAKE: Final = 0x1603


def _unknown() -> int:
    return 0


class InvalidReceiveError(Exception):
    """Raised if a peer has declared a size that no request may have. Kafka's `InvalidReceiveException`.

    `reason` is a metric label.
    """

    def __init__(self, message: str, reason: str = "invalid_size") -> None:
        super().__init__(message)
        self.reason = reason


class NetworkReceive:
    """The incoming side of one channel: the selector feeds it, the lifecycle takes `frames`, on the processor's thread.

    ```
       feed ──► size not whole ──► body not whole ──► frame ──► frames
                     ▲                  │  ▲ pool empty: waiting_for_memory, `stash` keeps what was read
                     └──────────────────┴──┘
    ```
    With `limits`, the frames are requests, and no frame may be larger than the limit of its API.
    A frame is a bytearray, or a memoryview if it is large; it is writable and not shared. With a pool, call `reserve`
    before each read and `settle` after it. While `waiting_for_memory` is True, the channel must not be read until
    `resume` returns True. `bytes_at_hand` returns the number of bytes that the peer has sent and that are not read yet.
    It is called only if the pool has refused memory for a small request.
    """

    __slots__ = (
        "_claim",
        "_filled",
        "_granted_bytes",
        "_head",
        "_pool",
        "_stash",
        "_trusted_bytes",
        "bytes_at_hand",
        "frames",
        "limits",
        "max_size_bytes",
        "target",
        "waiting_for_memory",
    )

    def __init__(self, max_size_bytes: int, pool: MemoryPool | None = None) -> None:
        self.max_size_bytes = max_size_bytes
        self.limits: RequestLimits | None = None
        self._pool = pool
        self._claim = Claim() if pool is not None else None
        self._granted_bytes = 0
        self._head = b""
        self.target: memoryview | None = None
        self._filled = 0
        self._trusted_bytes = _MAP_FROM_BYTES if pool is None else _POOLED_MAP_FROM_BYTES
        self._stash = b""
        self.bytes_at_hand: Callable[[], int] = _unknown
        self.waiting_for_memory = False
        self.frames: deque[bytearray | memoryview] = deque()

    @property
    def idle(self) -> bool:
        """Return True if the last frame is complete and no byte of the next frame has arrived."""
        return not self._head and self.target is None and not self._stash

    @property
    def held_bytes(self) -> int:
        """Return the bytes that have arrived and are still held here. Any thread may call this."""
        held_bytes = sum(map(len, tuple(self.frames))) + len(self._head) + len(self._stash)
        return held_bytes + (self._filled if self.target is not None else 0)

    @property
    def evicted(self) -> bool:
        """Return True if the pool needs the memory of the incomplete frame: the channel must then be closed."""
        return self._claim is not None and self._claim.evicted

    def reserve(self) -> int:
        """Get memory from the pool for the next read.

        Return the number of bytes that may be read, 0 if the channel must wait for memory.
        """
        pool, claim, target = self._pool, self._claim, self.target
        assert pool is not None
        assert claim is not None
        most_bytes = _LOW_READ_BYTES if pool.is_low else _STEP_BYTES
        if target is None:
            # The size of the frame is not known yet; its memory is taken later.
            return most_bytes
        lacking = len(target) - self._filled
        if not self._granted_bytes:
            self._granted_bytes = pool.grow(claim, min(lacking, _STEP_BYTES), min(lacking, _LOW_READ_BYTES))
            if not self._granted_bytes and self._has_been_sent(lacking):
                self._granted_bytes = pool.grow_to_the_end(claim, lacking)
            self.waiting_for_memory = not self._granted_bytes
        if self._granted_bytes < lacking:
            return self._granted_bytes
        return lacking + most_bytes

    def settle(self, arrived_bytes: int) -> None:
        """Release the reserved memory for which no bytes have arrived."""
        if self._granted_bytes:
            assert self._pool is not None
            assert self._claim is not None
            self._pool.settle(self._claim, arrived_bytes, self._granted_bytes - arrived_bytes)
            self._granted_bytes = 0

    def direct_buffer(self, at_least: int) -> memoryview | None:
        """Return the buffer of the frame in `target` if it still needs `at_least` bytes, else None.

        The caller reads into the buffer and then calls `filled`.
        """
        target = self.target
        if target is not None and len(target) - self._filled >= at_least:
            if self._pool is not None:
                return target[self._filled : self._filled + self._granted_bytes]
            return target[self._filled : self._filled + _FAIR_READ_BYTES]
        return None

    def filled(self, count: int) -> None:
        """Note that `count` bytes have been read into `direct_buffer`."""
        target = self.target
        assert target is not None
        self._filled += count
        if self._pool is not None:
            self.settle(count)
        if self._filled == len(target):
            if self._pool is None:
                self._trusted_bytes = min(max(self._trusted_bytes, 2 * self._filled), _TRUST_UP_TO_BYTES)
            else:
                assert self._claim is not None
                self._pool.complete(self._claim)
            self.frames.append(target)
            self.target = None

    def feed(self, data: memoryview, count: int) -> None:
        """Add the first `count` bytes of `data`, which the caller may reuse afterwards.

        Raises InvalidReceiveError for a negative or too large size.
        """
        position = 0
        target = self.target
        if target is not None:
            position = min(count, len(target) - self._filled)
            target[self._filled : self._filled + position] = data[:position]
            self.filled(position)
            if position == count:
                return
        if self._head:
            data = memoryview(self._head + bytes(data[position:count]))
            self._head = b""
            position, count = 0, len(data)
        frames = self.frames
        while count - position >= 4:
            (size_bytes,) = _SIZE.unpack_from(data, position)
            if size_bytes < 0 or size_bytes > self.max_size_bytes:
                if size_bytes >> 16 == _TLS_HANDSHAKE:
                    raise InvalidReceiveError(
                        "this is the beginning of a TLS handshake, and the listener expects plain text here",
                        "tls_to_plaintext",
                    )
                raise InvalidReceiveError(
                    f"declared size {size_bytes} bytes; between 0 and {self.max_size_bytes} may be sent "
                    "(socket.request.max.bytes, before authentication sasl.server.max.receive.size)"
                )
            if size_bytes > CHECKED_FROM_BYTES and self.limits is not None:
                if count - position < _SIZE_AND_KEY_BYTES:
                    break
                self._check_api(size_bytes, data, position + 4)
            if self._pool is not None and not self._take_in(size_bytes, count - position - 4):
                self._stash = bytes(data[position:count])
                self.waiting_for_memory = True
                return
            position += 4
            end = position + size_bytes
            if end > count:
                self._start(size_bytes, data[position:count])
                return
            frames.append(bytearray(data[position:end]))
            position = end
        if position < count:
            self._head = bytes(data[position:count])

    def _check_api(self, size_bytes: int, data: memoryview, position: int) -> None:
        (api_key,) = _KEY.unpack_from(data, position)
        assert self.limits is not None
        most_bytes = self.limits.bytes_of(api_key)
        if size_bytes > most_bytes:
            self.limits.counts.count("request_bytes")
            spec = find_spec(api_key)
            name = spec.name if spec is not None else f"key {api_key}"
            raise InvalidReceiveError(
                f"declared size {size_bytes} bytes of {name}, which may have {most_bytes} (request_max_bytes)",
                "request_too_large",
            )

    def _take_in(self, size_bytes: int, arrived_bytes: int) -> bool:
        """Take memory for a new frame: for the whole frame if possible, else for the bytes that have arrived."""
        pool, claim = self._pool, self._claim
        assert pool is not None
        assert claim is not None
        if size_bytes <= arrived_bytes:
            return (not claim.refused_ns and pool.try_allocate(size_bytes)) or pool.allocate_whole(claim, size_bytes)
        if pool.largest_bytes is not None and size_bytes > pool.largest_bytes:
            raise InvalidReceiveError(
                f"declared size {size_bytes} bytes; no request may take more than half of queued.max.request.bytes "
                f"({pool.largest_bytes}), because that limit is strict"
            )
        if arrived_bytes == 0 or pool.grow(claim, arrived_bytes, at_least=arrived_bytes) > 0:
            return True
        return self._has_been_sent(size_bytes - arrived_bytes) and pool.grow_to_the_end(claim, arrived_bytes) > 0

    def _has_been_sent(self, lacking_bytes: int) -> bool:
        return lacking_bytes <= _AT_HAND_UP_TO_BYTES and self.bytes_at_hand() >= lacking_bytes

    def resume(self) -> bool:
        """Try again to take memory; return True if reading may go on. Raises InvalidReceiveError."""
        self.waiting_for_memory = False
        if self._stash:
            stash, self._stash = self._stash, b""
            self.feed(memoryview(stash), len(stash))
        elif self.target is not None:
            self.reserve()
        return not self.waiting_for_memory

    def release(self, frame_bytes: int) -> None:
        """Return the memory of a frame to the pool."""
        if self._pool is not None:
            self._pool.release(frame_bytes)

    def discard(self) -> None:
        """Release all memory to the pool, because the channel has closed."""
        if self._pool is not None:
            assert self._claim is not None
            self._pool.abandon(self._claim)
            self._pool.release(sum(map(len, self.frames)))
        self._granted_bytes = 0
        self.frames.clear()
        self.target = None
        self._stash = self._head = b""

    def _start(self, size_bytes: int, first: memoryview) -> None:
        if size_bytes <= self._trusted_bytes:
            self.target = memoryview(bytearray(size_bytes))
        else:
            self.target = memoryview(mmap.mmap(-1, size_bytes))
        self._filled = len(first)
        self.target[: self._filled] = first
