"""Functions that read certificates and revocation lists: the subject in Java's form, and the time of expiry."""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import Any, Final

from cryptography import x509

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
"""The attribute names of RFC 2253. Like Java, `subject_name` writes every other attribute as a number."""

# UTF8String, PrintableString, TeletexString, IA5String, BMPString. Java reads all of these as UTF-8.
_TEXT_TAGS: Final = frozenset({12, 19, 20, 22, 30})
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_SPACE: Final = " \r"
_MAX_READ_BYTES: Final = 8192


def subject_name(der: bytes) -> str:
    """Return the subject of a certificate in DER like Java's `X500Principal.getName()`, RFC 2253.

    Raises ValueError for an invalid certificate, and for a subject that `cryptography` cannot read.
    """
    return _printed_name(_certificate(der), "subject")


def refused_certificate_details(der: bytes) -> dict[str, str]:
    """Return subject, issuer and serial number of a refused certificate, for logs and observers.

    Unreadable parts are left out. A certificate of more than 8 KiB is not read at all, because any client can send it.
    """
    if len(der) > _MAX_READ_BYTES:
        return {}
    details = {}
    with contextlib.suppress(ValueError):
        certificate = _certificate(der)
        details["tls_client_serial_number"] = f"{certificate.serial_number:x}"
        for part in ("issuer", "subject"):
            details[f"tls_client_{part}"] = _printed_name(certificate, part)
    return details


def _printed_name(certificate: x509.Certificate, part: str) -> str:
    try:
        rdns = getattr(certificate, part).rdns
        return ",".join("+".join(_printed(attribute) for attribute in rdn) for rdn in reversed(rdns))
    # An attribute that is a bit string causes a TypeError.
    except (ValueError, TypeError) as error:
        raise ValueError(f"the {part} of the certificate cannot be read: {error}") from error


def read_not_after(der: bytes) -> datetime:
    """Return the last moment at which a certificate in DER is valid. Raises ValueError for an invalid certificate."""
    return _certificate(der).not_valid_after_utc


def read_next_update(der: bytes) -> datetime | None:
    """Return the time of the next update of a revocation list in DER, if the list has one.

    Raises ValueError for an invalid revocation list.
    """
    return x509.load_der_x509_crl(der).next_update_utc


def _certificate(der: bytes) -> x509.Certificate:
    try:
        return x509.load_der_x509_certificate(der)
    except (ValueError, x509.InvalidVersion) as error:
        raise ValueError(f"not a certificate: {error}") from error


def _printed(attribute: x509.NameAttribute[Any]) -> str:
    dotted = attribute.oid.dotted_string
    keyword = _KEYWORDS.get(dotted)
    encoded = _encoded_value(attribute)
    if keyword is None or encoded[0] not in _TEXT_TAGS:
        return f"{keyword or dotted}=#{encoded.hex()}"
    content, _ = _element(encoded, 0)
    return f"{keyword}={_escape(encoded[content:].decode('utf-8', 'replace'))}"


def _encoded_value(attribute: x509.NameAttribute[Any]) -> bytes:
    """Return the encoded value of an attribute: tag, length and content.

    To encode it, the function makes a name that has only this attribute.
    """
    name = x509.Name([attribute]).public_bytes()
    position = 0
    # The name is a sequence of a set of a sequence of type and value.
    for _ in range(3):
        position, _ = _element(name, position)
    _, end_of_type = _element(name, position)
    return name[end_of_type:]


def _element(der: bytes, position: int) -> tuple[int, int]:
    """Return the start and the end of the content of the DER element at a position."""
    length = der[position + 1]
    begin = position + 2
    if length & 0x80:
        begin += length & 0x7F
        length = int.from_bytes(der[position + 2 : begin], "big")
    return begin, begin + length


def _escape(text: str) -> str:
    escaped = "".join(f"\\{c}" if c in _ESCAPED else "\\00" if c == "\0" else c for c in text)
    inner = escaped.lstrip(_SPACE)
    leading = escaped[: len(escaped) - len(inner)]
    trimmed = inner.rstrip(_SPACE)
    trailing = inner[len(trimmed) :]
    return "".join(f"\\{c}" for c in leading) + trimmed + "".join(f"\\{c}" for c in trailing)
