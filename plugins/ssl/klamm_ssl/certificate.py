"""What klamm reads of a certificate: its subject as Java prints it, and the time of its end.

Reads the DER itself: OpenSSL has checked the certificate by then, and a general parser costs more than the handshake
has to spare. Layout: RFC 5280, section 4.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""RFC 2253's table; Java writes every other attribute as a number."""

# UTF8String, PrintableString, TeletexString, IA5String, GeneralString, BMPString; Java reads them all as UTF-8.
_TEXT_TAGS: Final = frozenset({12, 19, 20, 22, 27, 30})
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_SPACE: Final = " \r"
_EXPLICIT_VERSION: Final = 0xA0
_UTC_TIME: Final = 23
_GENERAL_TIME: Final = 24


class CertificateFields(NamedTuple):
    """`subject` is the DER of the name; `not_after` the last moment at which the certificate is valid."""

    subject: bytes
    not_after: datetime


def read_certificate(der: bytes) -> CertificateFields:
    """The fields of a certificate in DER. Raises ValueError if it is none."""
    try:
        ((_, certificate, _),) = _elements(der)
        _, to_be_signed, _ = next(_elements(certificate))
        fields = [field for field in _elements(to_be_signed) if field[0] != _EXPLICIT_VERSION]
        # serialNumber, signature, issuer, validity, subject
        validity, subject = fields[3], fields[4]
        _, (kind, not_after, _) = _elements(validity[1])
        return CertificateFields(subject[2], _time(kind, not_after))
    except (IndexError, StopIteration, UnicodeDecodeError) as error:
        raise ValueError(f"not a certificate: {error!r}") from error


def read_next_update(der: bytes) -> datetime | None:
    """When a revocation list in DER is to be followed by another, if it says so. Raises ValueError if it is none."""
    try:
        ((_, whole, _),) = _elements(der)
        _, to_be_signed, _ = next(_elements(whole))
        _, *times = [(tag, content) for tag, content, _ in _elements(to_be_signed) if tag in (_UTC_TIME, _GENERAL_TIME)]
        return _time(*times[0]) if times else None
    except (IndexError, StopIteration, UnicodeDecodeError) as error:
        raise ValueError(f"it ends too early: {error!r}") from error


def _elements(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """The elements of a DER sequence: tag, content, and the whole of each."""
    position = 0
    while position < len(data):
        start = position
        tag, length = data[position], data[position + 1]
        position += 2
        if length & 0x80:
            width = length & 0x7F
            length = int.from_bytes(data[position : position + width], "big")
            position += width
        end = position + length
        if end > len(data):
            raise ValueError("not a certificate: it ends too early")
        yield tag, data[position:end], data[start:end]
        position = end


def _time(kind: int, content: bytes) -> datetime:
    text = content.decode("ascii")
    if kind == _UTC_TIME:
        # RFC 5280: years below 50 are of this century.
        text = ("20" if text[:2] < "50" else "19") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def distinguished_name(der: bytes) -> str:
    """A name in DER as Java's `X500Principal.getName()` prints it, RFC 2253. Raises ValueError if it is no name."""
    try:
        ((_, name, _),) = _elements(der)
        parts = ["+".join(_attribute(content) for _, content, _ in _elements(rdn)) for _, rdn, _ in _elements(name)]
    except IndexError as error:
        raise ValueError(f"not a name: {error!r}") from error
    return ",".join(reversed(parts))


def _attribute(content: bytes) -> str:
    (_, identifier, _), (tag, value, whole) = _elements(content)
    dotted = _dotted(identifier)
    keyword = _KEYWORDS.get(dotted)
    if keyword is None or tag not in _TEXT_TAGS:
        return f"{keyword or dotted}=#{whole.hex()}"
    return f"{keyword}={_escape(value.decode('utf-8', 'replace'))}"


def _dotted(identifier: bytes) -> str:
    numbers = []
    number = 0
    for byte in identifier:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


def _escape(text: str) -> str:
    escaped = "".join(f"\\{c}" if c in _ESCAPED else "\\00" if c == "\0" else c for c in text)
    inner = escaped.lstrip(_SPACE)
    leading = escaped[: len(escaped) - len(inner)]
    trimmed = inner.rstrip(_SPACE)
    trailing = inner[len(trimmed) :]
    return "".join(f"\\{c}" for c in leading) + trimmed + "".join(f"\\{c}" for c in trailing)
