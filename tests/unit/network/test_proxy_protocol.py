"""Tests of PROXY headers: read exactly, in pieces of any size, and refused if they are invalid."""

import ipaddress
import struct

import pytest
from fastcrc import crc32
from hypothesis import given
from hypothesis import strategies as st

from klamm import Address
from klamm.network.proxy.protocol import InvalidProxyHeaderError, ProxyHeader, ProxyHeaderReader
from klamm.network.proxy.trust import TrustedProxies

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"


class Feed:
    """A stream that arrives in pieces, and a reader that removes its header."""

    def __init__(self, stream, cuts=()):
        self.reader = ProxyHeaderReader()
        self.taken = 0
        for come in [*sorted(cuts), len(stream)]:
            while not self.reader.done and self.taken < come:
                self.taken += self.reader.receive(stream[self.taken : min(come, self.taken + self.reader.wanted)])
        self.rest = stream[self.taken :]


def version_2(command=0x21, family=0x11, body=b"", length=None):
    return SIGNATURE + struct.pack(">BBH", command, family, len(body) if length is None else length) + body


addresses = st.one_of(
    st.tuples(st.ip_addresses(v=4), st.ip_addresses(v=4)), st.tuples(st.ip_addresses(v=6), st.ip_addresses(v=6))
)
ports = st.integers(0, 65535)
tlvs = st.lists(st.tuples(st.sampled_from([0x01, 0x02, 0x04, 0x20, 0xE0]), st.binary(max_size=40)), max_size=4)


@st.composite
def headers(draw):
    """Return the bytes of a valid header, and their meaning."""
    source, destination = draw(addresses)
    source_port, destination_port = draw(ports), draw(ports)
    said = Address(str(source), source_port)
    if draw(st.booleans()):
        line = f"PROXY TCP{source.version} {source} {destination} {source_port} {destination_port}\r\n"
        return line.encode(), ProxyHeader(1, said)
    body = source.packed + destination.packed + struct.pack(">HH", source_port, destination_port)
    for kind, value in draw(tlvs):
        body += struct.pack(">BH", kind, len(value)) + value
    return version_2(family=0x11 if source.version == 4 else 0x21, body=body), ProxyHeader(2, said)


@given(header=headers(), rest=st.binary(max_size=50), cuts=st.lists(st.integers(0, 200), max_size=8))
def test_exactly_the_header_is_read(header, rest, cuts):
    data, said = header
    feed = Feed(data + rest, [cut for cut in cuts if cut < len(data + rest)])
    assert feed.reader.done
    assert feed.reader.header == said
    assert feed.rest == rest


@given(stream=st.binary(min_size=1, max_size=200), cuts=st.lists(st.integers(0, 200), max_size=8))
def test_other_bytes_are_left_unread_or_refused(stream, cuts):
    try:
        feed = Feed(stream, [cut for cut in cuts if cut < len(stream)])
    except InvalidProxyHeaderError:
        assert stream[:1] in (b"P", b"\r")
        return
    if stream[:1] not in (b"P", b"\r"):
        assert feed.reader.done
        assert feed.reader.header is None
        assert feed.rest == stream


@given(header=headers(), position=st.integers(0, 300), value=st.integers(0, 255))
def test_a_damaged_header_is_read_or_refused_without_another_error(header, position, value):
    data = bytearray(header[0])
    data[position % len(data)] = value
    try:
        feed = Feed(bytes(data) + bytes(300))
    except InvalidProxyHeaderError:
        return
    if feed.reader.header is not None and feed.reader.header.source is not None:
        ipaddress.ip_address(feed.reader.header.source.host)


@pytest.mark.parametrize(
    ("data", "version"),
    [
        (b"PROXY UNKNOWN\r\n", 1),
        (b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n", 1),
        (version_2(command=0x20, family=0x00), 2),
        (version_2(command=0x20, family=0x11, body=bytes(12)), 2),
        (version_2(family=0x00), 2),
        (version_2(family=0x31, body=bytes(216)), 2),
    ],
)
def test_a_header_of_the_proxy_itself_names_no_client(data, version):
    feed = Feed(data + b"rest")
    assert feed.reader.header == ProxyHeader(version)
    assert feed.rest == b"rest"


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\n....", "CR LF"),
        (b"PROXY TCP4 1.2.3.4 5.6.7.8 1\r\n", "form"),
        (b"PROXY TCP5 1.2.3.4 5.6.7.8 1 2\r\n", "form"),
        (b"PROXY  TCP4 1.2.3.4 5.6.7.8 1 2\r\n", "form"),
        (b"PROXY TCP4 1.2.3.400 5.6.7.8 1 2\r\n", "1.2.3.400"),
        (b"PROXY TCP4 ::1 ::1 1 2\r\n", "::1"),
        (b"PROXY TCP4 1.2.3.4 5.6.7.8 01 2\r\n", "is not a port"),
        (b"PROXY TCP4 1.2.3.4 5.6.7.8 65536 2\r\n", "is not a port"),
        (b"PROXY TCP4 1.2.3.4 5.6.7.8 \xb2 2\r\n", "ASCII"),
        (b"PROXY " + b"x" * 200, "longer than 107"),
        (b"POST / HTTP/1.1\r\n", "signature"),
        (b"\r\n\r\n\0\r\nQUIX\n....", "signature"),
        (version_2(command=0x31), "0x31"),
        (version_2(command=0x22), "0x22"),
        (version_2(family=0x12, body=bytes(12)), "0x12"),
        (version_2(body=bytes(11)), "too short"),
        (version_2(body=bytes(12) + b"\x04\x00"), "cut off"),
        (version_2(body=bytes(12) + b"\x04\x00\x09abc"), "cut off"),
        (version_2(body=bytes(12) + b"\x03\x00\x04\x00\x00\x00\x01"), "checksum"),
    ],
)
def test_wrong_headers_are_refused(data, complaint):
    with pytest.raises(InvalidProxyHeaderError, match=complaint):
        Feed(data)


def test_a_checksum_is_checked():
    body = bytes([10, 0, 0, 1, 10, 0, 0, 2]) + struct.pack(">HH", 5, 6) + b"\x03\x00\x04"
    checksum = crc32.iscsi(version_2(body=body + bytes(4))).to_bytes(4, "big")
    assert Feed(version_2(body=body + checksum)).reader.header == ProxyHeader(2, Address("10.0.0.1", 5))


@pytest.mark.parametrize(
    ("host", "trusted"),
    [("10.1.2.3", True), ("::ffff:10.1.2.3", True), ("11.1.2.3", False), ("fe80::1%eth0", True), ("fe81::1", False)],
)
def test_trusted_proxies_are_given_as_networks(host, trusted):
    assert TrustedProxies(["10.0.0.0/8", "fe80::/16"], required=True).trusts(Address(host, 1)) is trusted
