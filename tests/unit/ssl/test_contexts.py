"""Tests of TLS contexts from files: PEM, PKCS#12, passwords, and unusable files."""

import contextlib
import dataclasses
import socket
import ssl
import threading
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from klamm.config.setting import convert
from klamm.runtime import PLATFORM
from klamm_ssl.contexts import SslFiles, SslFilesError, _as_file
from klamm_ssl.options import SniSettings
from klamm_ssl.ssl_settings import SslSettings
from tests.tls_files import TlsFiles, revocation_list

PASSWORD = "a secret password"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return TlsFiles(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def password_file(tmp_path):
    file = tmp_path / "password"
    file.write_text(PASSWORD + "\nwhat follows is no part of it\n")
    return file


def contexts(environment=None, **settings):
    return SslFiles(SslSettings(**settings), environment or {}).contexts()


def shake_hands(context, client_context, hostname="localhost"):
    """Return what server and client then know of each other: the certificates in DER."""
    server_end, client_end = socket.socketpair()
    found = {}

    def serve():
        try:
            with context.wrap_socket(server_end, server_side=True) as sock:
                found["client"] = sock.getpeercert(binary_form=True)
                sock.sendall(b"1")
        except ssl.SSLError as error:
            found["error"] = error
            server_end.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client_context.wrap_socket(client_end, server_hostname=hostname) as sock:
            sock.do_handshake()
            found["server"] = sock.getpeercert()
            # With TLS 1.3 the server checks the certificate after the client's part. An alert or a byte shows the
            # result.
            with contextlib.suppress(ssl.SSLError):
                sock.recv(1)
    finally:
        thread.join()
    return found


def common_name(found):
    return dict(pair for (pair,) in found["server"]["subject"])["commonName"]


def test_certificate_and_key_may_be_in_one_file_in_two_or_in_the_settings(files):
    both = {"certificate": files.server.both}
    two = {"certificate": files.server.certificate, "private_key": files.server.key}
    inline = {
        "certificate_pem": files.server.certificate.read_text(),
        "private_key_pem": files.server.key.read_text(),
    }
    for settings in (both, two, inline):
        assert common_name(shake_hands(contexts(**settings).context, files.client_context())) == "localhost"


def test_a_chain_may_be_in_a_file_of_its_own(files, tmp_path):
    below = files.authority.intermediate("CN=below", now=files.now)
    identity = below.issue("CN=leaf", now=files.now, hosts=("localhost",))
    written = files.write("leaf", identity)
    leaf, _, chain = written.certificate.read_text().partition("-----END CERTIFICATE-----\n")
    written.certificate.write_text(leaf + "-----END CERTIFICATE-----\n")
    rest = tmp_path / "chain.pem"
    rest.write_text(chain)
    built = contexts(certificate=written.certificate, private_key=written.key, chain=rest)
    assert common_name(shake_hands(built.context, files.client_context())) == "leaf"


def test_issued_certificates_pass_strict_verification(files):
    """Python 3.13 verifies strictly by RFC 5280."""
    below = files.authority.intermediate("CN=strict", now=files.now)
    written = files.write("strict", below.issue("CN=strict leaf", now=files.now, hosts=("localhost",)))
    context = files.client_context()
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    assert common_name(shake_hands(contexts(certificate=written.both).context, context)) == "strict leaf"


def test_the_earliest_expiry_in_the_chain_is_reported(files):
    below = files.authority.intermediate("CN=short", now=files.now, days=3)
    written = files.write("long", below.issue("CN=long", now=files.now, hosts=("localhost",), days=300))
    (end,) = contexts(certificate=written.both).expirations.values()
    assert (end - files.now).days in (2, 3)


def test_keys_may_be_encrypted(files, password_file, tmp_path):
    key = tmp_path / "encrypted.key"
    key.write_bytes(files.server.identity.key_pem(PASSWORD))
    source = {"certificate": files.server.certificate, "private_key": key}
    built = [
        contexts(**source, key_password_file=password_file),
        contexts({"KEY": PASSWORD}, **source, key_password_env="KEY"),
    ]
    for each in built:
        assert common_name(shake_hands(each.context, files.client_context())) == "localhost"


def test_a_pkcs12_keystore_has_key_certificate_and_chain_in_order(files, password_file, tmp_path):
    upper = files.authority.intermediate("CN=upper", now=files.now)
    keystore = tmp_path / "server.p12"
    identity = upper.issue("CN=stored", now=files.now, hosts=("localhost",))
    keystore.write_bytes(identity.pkcs12(PASSWORD, [files.authority.root]))
    built = contexts(keystore=keystore, key_password_file=password_file)
    assert common_name(shake_hands(built.context, files.client_context())) == "stored"


def test_a_trust_store_may_be_pem_pkcs12_or_inline(files, password_file, tmp_path):
    other = TlsFiles(tmp_path / "other", "other CA")
    store = tmp_path / "trust.p12"
    store.write_bytes(other.client.identity.pkcs12(PASSWORD, [files.authority.root]))
    sources = [
        {"trust_store": files.ca},
        {"trust_store_pem": files.ca.read_text()},
        {"trust_store": store, "trust_store_password_file": password_file},
    ]
    for source in sources:
        built = contexts(certificate=files.server.both, client_auth="required", **source)
        assert shake_hands(built.context, files.client_context(files.client))["client"]


def test_a_client_certificate_may_itself_be_trusted(files, tmp_path):
    unknown = TlsFiles(tmp_path / "stranger", "unknown CA").client
    built = contexts(certificate=files.server.both, client_auth="required", trust_store=unknown.certificate)
    assert shake_hands(built.context, files.client_context(unknown))["client"]
    found = shake_hands(built.context, files.client_context(files.client))
    assert found["error"].verify_code in (18, 19, 20)


def test_the_digest_shows_whether_any_content_has_changed(files, tmp_path):
    crl = tmp_path / "crl.pem"
    crl.write_bytes(revocation_list(files.authority, [], now=files.now))
    settings = SslSettings(certificate=files.server.both, trust_store=files.ca, revocation_lists=(crl,))
    before = SslFiles(settings, {}).digest
    crl.touch()
    assert SslFiles(settings, {}).digest == before
    crl.write_bytes(crl.read_bytes() + b"\n")
    assert SslFiles(settings, {}).digest != before


def authorities_in_a_row(files, tmp_path, revoked_by_root=()):
    """Return a client of an intermediate authority, and the revocation lists of root and intermediate authority."""
    below = files.authority.intermediate("CN=below", now=files.now)
    client = files.write("of-below", below.issue("CN=bob", now=files.now))
    revoked = [below.identity.certificate] if revoked_by_root else []
    lists = {"root": revocation_list(files.authority, revoked, now=files.now, days=20)}
    lists["below"] = revocation_list(below, [], now=files.now, days=7)
    for name, content in lists.items():
        (tmp_path / f"{name}.crl").write_bytes(content)
    return client, (tmp_path / "root.crl", tmp_path / "below.crl")


@pytest.mark.parametrize(
    ("check", "given", "revoked", "verify_code"),
    [
        ("chain", "both", False, None),
        ("chain", "both", True, 23),
        ("chain", "below", False, 3),
        ("leaf", "both", True, None),
        ("leaf", "below", False, None),
        ("leaf", "root", False, 3),
    ],
)
def test_revocation_lists_are_required_of_every_authority_or_of_the_last(
    files, tmp_path, check, given, revoked, verify_code
):
    client, (root, below) = authorities_in_a_row(files, tmp_path, revoked)
    lists = {"both": (root, below), "root": (root,), "below": (below,)}[given]
    built = contexts(
        certificate=files.server.both,
        trust_store=files.ca,
        client_auth="required",
        revocation_lists=lists,
        revocation_check=check,
    )
    found = shake_hands(built.context, files.client_context(client))
    assert (found["error"].verify_code if "error" in found else None) == verify_code


def test_the_expiry_of_trust_and_revocation_lists_is_known(files, tmp_path):
    _, lists = authorities_in_a_row(files, tmp_path)
    built = contexts(
        certificate=files.server.both, trust_store=files.ca, client_auth="required", revocation_lists=lists
    )
    days = {name: round((end - files.now).total_seconds() / 86_400) for name, end in built.expirations.items()}
    assert days == {"default": 397, "trust_store": 3650, "revocation_lists": 7}


def test_a_certificate_for_a_server_name_can_come_from_any_source(files, password_file, tmp_path):
    encrypted = tmp_path / "encrypted.key"
    keystore = tmp_path / "sni.p12"
    identities = {name: files.issue(name, f"CN={name}", hosts=("localhost",)) for name in ("inline", "variable")}
    encrypted.write_bytes(identities["variable"].identity.key_pem(PASSWORD))
    keystore.write_bytes(files.issue("stored", "CN=stored", hosts=("localhost",)).identity.pkcs12(PASSWORD))
    table = {
        "certificate": str(files.server.both),
        "sni": {
            "a.example.org": {
                "certificate_pem": identities["inline"].certificate.read_text(),
                "private_key_pem": identities["inline"].key.read_text(),
            },
            "b.example.org": {
                "certificate": str(identities["variable"].certificate),
                "private_key": str(encrypted),
                "key_password_env": "KEY",
            },
            "c.example.org": {"keystore": "sni.p12", "key_password_file": password_file.name},
        },
    }
    problems = []
    made = convert(SslSettings, table, lambda *problem: problems.append(problem), tmp_path)
    assert problems == []
    built = SslFiles(made, {"KEY": PASSWORD}).contexts()
    client = files.client_context()
    client.check_hostname = False
    shown = [common_name(shake_hands(built.context, client, f"{one}.example.org")) for one in "abcd"]
    assert shown == ["inline", "variable", "stored", "localhost"]


@pytest.mark.parametrize(
    ("host", "complaint"),
    [
        ({}, '"a.example.org" needs one of certificate, certificate_pem and keystore'),
        ({"certificate": "x", "keystore": "y"}, '"a.example.org" needs one of'),
        ({"certificat": "x"}, 'certificat: unknown key; did you mean "certificate"?'),
        ("x", "must be a table"),
    ],
)
def test_an_invalid_entry_of_sni_is_refused(tmp_path, host, complaint):
    problems = []
    table = {"sni": {"a.example.org": host}}
    assert convert(SslSettings, table, lambda *problem: problems.append(problem), tmp_path) is None
    ((key, message),) = problems
    assert key == "sni"
    assert complaint in message


def test_a_host_with_the_name_default_is_not_the_default(files):
    other = files.issue("other", "CN=other", hosts=("default",))
    built = contexts(certificate=files.server.both, sni={"default": SniSettings(certificate=other.both)})
    assert set(built.expirations) == {"default", "default."}
    assert common_name(shake_hands(built.context, files.client_context(), "localhost")) == "localhost"
    assert common_name(shake_hands(built.context, files.client_context(), "default")) == "other"


BROKEN = {
    "nothing": ({}, "one of certificate, certificate_pem and keystore must be set"),
    "two certificates": ({"certificate": "server", "keystore": "server"}, "one of certificate"),
    "a file that is not there": ({"certificate": "absent"}, "absent: No such file or directory"),
    "no certificate": ({"certificate": "garbage"}, "garbage: "),
    "no key": ({"certificate": "certificate"}, "no private key"),
    "a key of another": ({"certificate": "certificate", "private_key": "client-key"}, "does not belong"),
    "no password": ({"certificate": "certificate", "private_key": "encrypted"}, "is encrypted: set key_password_file"),
    "a wrong password": (
        {"certificate": "certificate", "private_key": "encrypted", "key_password_file": "garbage"},
        "the password is wrong",
    ),
    "an absent variable": (
        {"certificate": "certificate", "private_key": "encrypted", "key_password_env": "ABSENT"},
        "the environment variable ABSENT is not set",
    ),
    "no keystore": ({"keystore": "garbage"}, "the password is wrong, or it is not a PKCS#12 file"),
    "a keystore with a wrong password": ({"keystore": "p12", "key_password_file": "garbage"}, "the password is wrong"),
    "no trust": ({"certificate": "server", "client_auth": "required"}, "needs trust_store"),
    "trust in garbage": ({"certificate": "server", "trust_store": "pem-garbage"}, "trust_store or revocation_lists"),
    "lists without trust": (
        {"certificate": "server", "client_auth": "requested", "revocation_lists": "garbage"},
        "revocation_lists need trust_store",
    ),
    "lists without client certificates": (
        {"certificate": "server", "trust_store": "certificate", "revocation_lists": "garbage"},
        "revocation_lists need client_auth",
    ),
    "no lists": (
        {
            "certificate": "server",
            "trust_store": "certificate",
            "client_auth": "required",
            "revocation_lists": "garbage",
        },
        "garbage: it contains no PEM revocation list",
    ),
    "a broken list": (
        {
            "certificate": "server",
            "trust_store": "certificate",
            "client_auth": "required",
            "revocation_lists": "crl-garbage",
        },
        "crl-garbage: not a revocation list",
    ),
    "no ciphers": ({"certificate": "server", "ciphers": "NONSENSE"}, "OpenSSL does not know any of these"),
    "versions": ({"certificate": "server", "min_version": "TLSv1.3", "max_version": "TLSv1.2"}, "is above"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_unusable_values_are_reported_without_secrets(files, tmp_path, what):
    written = {
        "server": files.server.both.read_bytes(),
        "certificate": files.server.certificate.read_bytes(),
        "client-key": files.client.key.read_bytes(),
        "encrypted": files.server.identity.key_pem(PASSWORD),
        "p12": files.server.identity.pkcs12(PASSWORD),
        "garbage": b"garbage",
        "crl-garbage": b"-----BEGIN X509 CRL-----\ngarbage\n-----END X509 CRL-----\n",
        "pem-garbage": b"-----BEGIN CERTIFICATE-----\ngarbage\n-----END CERTIFICATE-----\n",
    }
    for name, content in written.items():
        (tmp_path / name).write_bytes(content)
    given, complaint = BROKEN[what]
    plain = {"client_auth", "min_version", "max_version", "ciphers", "key_password_env"}
    settings = {key: value if key in plain else tmp_path / value for key, value in given.items()}
    if "revocation_lists" in settings:
        settings["revocation_lists"] = (settings["revocation_lists"],)
    with pytest.raises(SslFilesError, match=complaint) as raised:
        contexts(**settings)
    assert PASSWORD not in str(raised.value)
    assert "PRIVATE KEY" not in str(raised.value)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({}, ("", "one of certificate, certificate_pem and keystore must be set; `klamm certs` can make one")),
        ({"certificate": "absent"}, ("certificate", "absent: No such file or directory")),
        ({"certificate": "garbage"}, ("certificate", "garbage: it contains no certificate")),
        ({"certificate": "both", "private_key": "absent"}, ("private_key", "absent: No such file or directory")),
        (
            {"certificate": "both", "private_key": "garbage"},
            ("private_key", "garbage: it contains no private key, or the password is wrong"),
        ),
        (
            {"certificate": "both", "private_key": "other-key"},
            ("private_key", "other-key: the private key does not belong to the certificate"),
        ),
        (
            {"certificate": "both", "private_key": "rsa-key"},
            ("private_key", "rsa-key: the private key does not belong to the certificate"),
        ),
        (
            {"certificate": "both", "key_password_env": "KLAMM_ABSENT"},
            ("key_password_env", "the environment variable KLAMM_ABSENT is not set"),
        ),
        (
            {"certificate": "both", "trust_store": "absent", "client_auth": "required"},
            ("trust_store", "absent: No such file or directory"),
        ),
        (
            {"certificate": "both", "sni": {"a.example.org": {"certificate": "both", "chain": "absent"}}},
            ("sni.a.example.org.chain", "absent: No such file or directory"),
        ),
        (
            {"certificate": "both", "client_auth": "required"},
            ("client_auth", 'client_auth = "required" needs trust_store or trust_store_pem'),
        ),
        (
            {"certificate": "both", "min_version": "TLSv1.3", "max_version": "TLSv1.2"},
            ("min_version", "min_version TLSv1.3 is above max_version TLSv1.2"),
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_problems_are_reported_with_their_setting(files, tmp_path, settings, problem):
    (tmp_path / "both").write_bytes(files.server.both.read_bytes())
    (tmp_path / "other-key").write_bytes(files.client.key.read_bytes())
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    (tmp_path / "rsa-key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    (tmp_path / "garbage").write_bytes(b"garbage")
    made = convert(SslSettings, settings, lambda *_: pytest.fail("is wrong by itself"), tmp_path)
    assert [(key, message.replace(f"{tmp_path}/", "")) for key, message in made.problems()] == [problem]


def test_valid_settings_have_no_problems(files):
    assert list(SslSettings(certificate=files.server.both).problems()) == []


def test_the_configured_key_precedes_a_key_in_the_certificates_file(files, tmp_path):
    mixed = tmp_path / "mixed.pem"
    mixed.write_bytes(files.client.key.read_bytes() + files.server.certificate.read_bytes())
    built = contexts(certificate=mixed, private_key=files.server.key)
    assert common_name(shake_hands(built.context, files.client_context(), "localhost")) == "localhost"
    with pytest.raises(SslFilesError, match="does not belong"):
        contexts(certificate=files.server.both, private_key=files.client.key)


def test_temporary_files_of_keys_are_removed(monkeypatch):
    monkeypatch.setattr("klamm_ssl.contexts.PLATFORM", dataclasses.replace(PLATFORM, has_memory_files=False))
    with _as_file(b"secret") as name:
        path = Path(name)
        assert path.read_bytes() == b"secret"
        assert path.parent.stat().st_mode & 0o077 == 0
    assert not path.exists()
