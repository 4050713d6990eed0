"""Addresses that have tried many wrong passwords lately."""

from __future__ import annotations

import ipaddress
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from klamm.runtime import Clock

FAILURES: Final = 10
_S_NS: Final = 1_000_000_000
_FORGIVEN_NS: Final = 3 * _S_NS
_SUSPECT_NS: Final = 30 * _S_NS
_MAX_SOURCES: Final = 10_000
_IPV6_PREFIX: Final = 64


def source_of(host: str) -> str:
    """What failures are counted by: an IPv4 address, the /64 of an IPv6 one, else the host as it is."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address), _IPV6_PREFIX), strict=False))


class Suspects:
    """Counts failed checks by source. From any thread.

    One failure is forgiven every 3 s. A source with `FAILURES` that are not is a suspect until 30 s after its last
    failure. A check that succeeds halves what is left to be forgiven. That does not pay for guessing: only checks
    that were made count, and a password that was right is remembered and not checked again, so that an account of
    one's own halves once and not again and again.

    The 10,000 sources that failed last are known. `became` is called with a source that has become a suspect.
    """

    def __init__(self, clock: Clock, became: Callable[[str], object]) -> None:
        self._clock = clock
        self._became = became
        self._lock = threading.Lock()
        # When the last failure will have been forgiven, in the order of the last failures.
        self._forgiven_ns: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._forgiven_ns)

    def __contains__(self, source: str) -> bool:
        """Whether it is a suspect."""
        now_ns = self._clock.monotonic_ns()
        with self._lock:
            return self._is_suspect(self._forgiven_ns.get(source, now_ns) - now_ns)

    @staticmethod
    def _is_suspect(left_ns: int) -> bool:
        return left_ns > (FAILURES - 1) * _FORGIVEN_NS

    def failed(self, source: str) -> None:
        """A check has failed."""
        now_ns = self._clock.monotonic_ns()
        with self._lock:
            left_ns = max(0, self._forgiven_ns.pop(source, now_ns) - now_ns)
            was, left_ns = self._is_suspect(left_ns), left_ns + _FORGIVEN_NS
            suspect = self._is_suspect(left_ns)
            if suspect:
                left_ns = (FAILURES - 1) * _FORGIVEN_NS + _SUSPECT_NS
            self._forgiven_ns[source] = now_ns + left_ns
            if len(self._forgiven_ns) > _MAX_SOURCES:
                self._forgiven_ns.popitem(last=False)
        if suspect and not was:
            self._became(source)

    def succeeded(self, source: str) -> None:
        """A check has succeeded."""
        now_ns = self._clock.monotonic_ns()
        with self._lock:
            left_ns = self._forgiven_ns.get(source, now_ns) - now_ns
            if left_ns > 0:
                self._forgiven_ns[source] = now_ns + left_ns // 2
