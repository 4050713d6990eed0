"""The parser of the header that a proxy sends first in the PROXY protocol, versions 1 and 2. It does no I/O.

It follows HAProxy's specification, "The PROXY protocol, versions 1 & 2".
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from struct import Struct
from typing import Final

from fastcrc import crc32

from klamm.api.context import Address

SIGNATURE_V1: Final = b"PROXY "
SIGNATURE_V2: Final = b"\r\n\r\n\0\r\nQUIT\n"
# The length of the shortest header: so many bytes may be read without reading data that follow the header.
_SHORTEST: Final = 15
_LONGEST_V1: Final = 107
_V2_FIXED: Final = 16
_V2_HEAD: Final = Struct(">12sBBH")
_PORTS: Final = Struct(">HH")
_LOCAL, _PROXY = 0x20, 0x21
_UNSPECIFIED, _TCP4, _TCP6, _UNIX = 0x00, 0x11, 0x21, 0x31
_ADDRESS_BYTES: Final = {_TCP4: 4, _TCP6: 16}
_TLV: Final = Struct(">BH")
_CRC32C: Final = 0x03


class InvalidProxyHeaderError(Exception):
    """Raised if the bytes are not a header of the PROXY protocol."""


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """A header. `source` is the address of the client.

    `source` is None if the proxy itself is the client (LOCAL), or does not know the address (UNKNOWN, UNSPEC).
    """

    version: int
    source: Address | None = None


class ProxyHeaderReader:
    """Reads a header piece by piece, and no byte after it.

    ```
       peek at most `wanted` bytes ──► `receive` returns how many of them belong to the header
                ▲                                    │
                └─────────── until `done` ◄──────────┘
    ```
    The other bytes belong to the client and stay in the socket. The first byte decides whether there is a header; if
    not, `header` is None. The byte is unambiguous: a request whose size began with it would have at least 208 MiB, and
    a TLS handshake begins with another byte.
    """

    def __init__(self) -> None:
        self._taken = b""
        self.wanted = _SHORTEST
        self.done = False
        self.header: ProxyHeader | None = None

    def receive(self, data: bytes) -> int:
        """Examine bytes that have arrived, at least one and at most `wanted`; return how many belong to the header.

        Raises InvalidProxyHeaderError.
        """
        if not self._taken and data[:1] not in (SIGNATURE_V1[:1], SIGNATURE_V2[:1]):
            self.done = True
            return 0
        before = len(self._taken)
        self._taken += data
        if self._taken[:1] == SIGNATURE_V1[:1]:
            self._check(SIGNATURE_V1)
            self._receive_v1()
        else:
            self._check(SIGNATURE_V2)
            self._receive_v2()
        return len(self._taken) - before

    def _check(self, signature: bytes) -> None:
        if self._taken[: len(signature)] != signature[: len(self._taken)]:
            raise InvalidProxyHeaderError("the signature is wrong")

    def _receive_v1(self) -> None:
        end = self._taken.find(b"\n")
        if end < 0:
            if len(self._taken) >= _LONGEST_V1:
                raise InvalidProxyHeaderError(f"the line is longer than {_LONGEST_V1} bytes")
            self.wanted = (_SHORTEST if len(self._taken) < _SHORTEST else _LONGEST_V1) - len(self._taken)
            return
        self._taken = self._taken[: end + 1]
        self.header = _parse_v1(self._taken)
        self.done = True

    def _receive_v2(self) -> None:
        taken = self._taken
        if len(taken) < _V2_FIXED:
            self.wanted = _V2_FIXED - len(taken)
            return
        _, command, family, length = _V2_HEAD.unpack_from(taken)
        if command not in (_LOCAL, _PROXY):
            raise InvalidProxyHeaderError(f"version and command 0x{command:02x} are unknown")
        self.wanted = _V2_FIXED + length - len(taken)
        if self.wanted == 0:
            self.header = _parse_v2(command, family, taken)
            self.done = True


def _parse_v1(line: bytes) -> ProxyHeader:
    try:
        words = line.decode("ascii").removesuffix("\r\n").split(" ")
    except UnicodeDecodeError as error:
        raise InvalidProxyHeaderError("the line is not ASCII") from error
    if not line.endswith(b"\r\n"):
        raise InvalidProxyHeaderError("the line does not end with CR LF")
    if words[1] == "UNKNOWN":
        return ProxyHeader(1)
    kinds = {"TCP4": ipaddress.IPv4Address, "TCP6": ipaddress.IPv6Address}
    if words[1] not in kinds or len(words) != 6:
        raise InvalidProxyHeaderError("the line is not of the form PROXY TCP4|TCP6 SOURCE DESTINATION PORT PORT")
    try:
        source, _ = (kinds[words[1]](word) for word in words[2:4])
        port, _ = map(_port, words[4:])
    except ValueError as error:
        raise InvalidProxyHeaderError(str(error)) from error
    return ProxyHeader(1, Address(str(source), port))


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and str(int(text)) == text and int(text) <= 65535):
        raise ValueError(f"{text!r} is not a port")
    return int(text)


def _parse_v2(command: int, family: int, header: bytes) -> ProxyHeader:
    if family not in (_UNSPECIFIED, _TCP4, _TCP6, _UNIX):
        raise InvalidProxyHeaderError(f"address family and protocol 0x{family:02x} are not those of a stream")
    if command == _LOCAL:
        return ProxyHeader(2)
    size = _ADDRESS_BYTES.get(family)
    if size is None:
        return ProxyHeader(2)
    end = _V2_FIXED + 2 * size + _PORTS.size
    if len(header) < end:
        raise InvalidProxyHeaderError("the header is too short for its addresses")
    _check_tlvs(header, end)
    source = ipaddress.ip_address(header[_V2_FIXED : _V2_FIXED + size])
    port, _ = _PORTS.unpack_from(header, _V2_FIXED + 2 * size)
    return ProxyHeader(2, Address(str(source), port))


def _check_tlvs(header: bytes, position: int) -> None:
    """Raise InvalidProxyHeaderError if a TLV is cut off, or if it is a checksum that is wrong."""
    while position < len(header):
        if len(header) - position < _TLV.size:
            raise InvalidProxyHeaderError("a TLV is cut off")
        kind, length = _TLV.unpack_from(header, position)
        position += _TLV.size
        value = header[position : position + length]
        if len(value) != length:
            raise InvalidProxyHeaderError("a TLV is cut off")
        if kind == _CRC32C:
            zeroed = header[:position] + bytes(length) + header[position + length :]
            if value != crc32.iscsi(zeroed).to_bytes(4, "big"):
                raise InvalidProxyHeaderError("the checksum is wrong")
        position += length
