"""Tests of names as Java prints them (a JDK 17 printed each), and of other data of a certificate."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from klamm_ssl.certificate import read_not_after, subject_name
from klamm_ssl.issuing import CertificateAuthority

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
CERTIFICATE = CertificateAuthority.create("CN=ca", now=NOW).identity.certificate


def encoded(tag: int, content: bytes) -> bytes:
    """Return an element of DER."""
    size = len(content)
    length = bytes((size,) if size < 0x80 else (0x81, size) if size < 0x100 else (0x82, *size.to_bytes(2, "big")))
    return bytes((tag,)) + length + content


def certificate_of(subject: bytes) -> bytes:
    """Return a certificate in DER with this subject in DER. Its signature is invalid."""
    issuer = CERTIFICATE.issuer.public_bytes()
    version, serial = encoded(0xA0, encoded(2, b"\2")), encoded(2, b"\1")
    algorithm = encoded(0x30, bytes.fromhex("06082a8648ce3d040302"))
    validity = encoded(0x30, encoded(23, b"260101000000Z") * 2)
    key = CERTIFICATE.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    to_be_signed = encoded(0x30, version + serial + algorithm + issuer + validity + subject + key)
    return encoded(0x30, to_be_signed + algorithm + encoded(3, b"\0"))


@pytest.mark.parametrize(
    ("der", "printed"),
    [
        (
            "3030310e300c060355040a13056b6c616d6d310e300c060355040b13057465737473310e300c06035504031305616c696365",
            "CN=alice,OU=tests,O=klamm",
        ),
        ("301e310e300c060355040a1305783d792b7a310c300a06035504031303612c62", r"CN=a\,b,O=x\=y\+z"),
        (
            "3027310e300c060355040a0c052368617368311530130603550403130c206c65616420747261696c20",
            r"CN=\ lead trail\ ,O=\#hash",
        ),
        (
            "302731143012060355040a0c0b6123623b3c633e5c227122310f300d06035504030c06783d792c207a",
            r"CN=x\=y\, z,O=a\#b\;\<c\>\\\"q\"",
        ),
        (
            "302a310a3008060355040c0c0174310b3009060355040513023132310f300d06035504030c06c38472676572",
            "CN=Ärger,2.5.4.5=#13023132,2.5.4.12=#0c0174",
        ),
        (
            "3022310a300806035504031301783114301206092a864886f70d01090116056140622e63",
            "1.2.840.113549.1.9.1=#16056140622e63,CN=x",
        ),
        (
            "304131133011060a0992268993f22c64011916036f726731173015060a0992268993f22c64011916076578616d706c65"
            "3111300f060a0992268993f22c640101130175",
            "UID=u,DC=example,DC=org",
        ),
        (
            "3032310b3009060355040613024445310a3008060355040713016c310b3009060355040813027374310a30080603550409130173",
            "STREET=s,ST=st,L=l,C=DE",
        ),
        ("3022310a3008060355040a1301633114300806035504031301613008060355040b130162", "CN=a+OU=b,O=c"),
        ("300f310d300b06035504031c0400000075", "CN=#1c0400000075"),
        (
            "302e310e300c06035504030c056e756c0078310b3009060355040a0c022020310f300d060355040b0c0674616209780d",
            "OU=tab\tx\\\r,O=\\ \\ ,CN=nul\\00x",
        ),
        ("301f310c300a06035504030c0374776f310f300d06035504031e060062006d0070", r"CN=\00b\00m\00p,CN=two"),
        ("3000", ""),
    ],
)
def test_names_are_printed_as_java_prints_them(der, printed):
    assert subject_name(certificate_of(bytes.fromhex(der))) == printed


@pytest.mark.parametrize(
    ("tag", "content"),
    [(27, b"abc"), (20, b"\xe4rger"), (12, b"\xff"), (22, b"\xe4"), (3, b"\0ab")],
    ids=["GeneralString", "Latin-1", "no UTF-8", "no ASCII", "BitString"],
)
def test_a_subject_that_cannot_be_read_is_one_error(tag, content):
    attribute = encoded(0x30, bytes.fromhex("0603550403") + encoded(tag, content))
    with pytest.raises(ValueError, match="subject of the certificate cannot be read"):
        subject_name(certificate_of(encoded(0x30, encoded(0x31, attribute))))


def test_a_certificate_is_read():
    authority = CertificateAuthority.create("CN=ca", now=NOW)
    certificate = authority.issue("CN=bob,O=klamm", now=NOW, days=10).certificate
    der = certificate.public_bytes(Encoding.DER)
    assert subject_name(der) == "CN=bob,O=klamm"
    assert read_not_after(der) == NOW + timedelta(days=10)


def test_a_time_after_2049_is_read_although_its_encoding_differs():
    authority = CertificateAuthority.create("CN=ca", now=NOW, days=36_500)
    der = x509.load_pem_x509_certificate(authority.root_pem).public_bytes(Encoding.DER)
    assert read_not_after(der) == NOW + timedelta(days=36_500)


@given(st.binary(max_size=60))
def test_garbage_is_not_a_certificate(data):
    with pytest.raises(ValueError):
        subject_name(data)


DER = CERTIFICATE.public_bytes(Encoding.DER)


@given(st.integers(0, len(DER) - 1), st.integers(0, 255))
def test_a_damaged_certificate_is_read_or_raises_its_own_error(position, value):
    damaged = bytearray(DER)
    damaged[position] = value
    try:
        subject_name(bytes(damaged))
        read_not_after(bytes(damaged))
    except ValueError:
        return
