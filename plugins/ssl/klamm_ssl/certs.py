"""`klamm certs`: creates a development CA with server and client certificates, and explains how to use them.

The server never calls this: a listener without certificates does not start.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cryptography import x509

from klamm.runtime import replace_file
from klamm_ssl.issuing import CertificateAuthority, Identity

_EXIT_USAGE: Final = 2
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_HOST: Final = re.compile(r"[\w.*:-]+", re.ASCII)

_TEXT: Final = """\
Certificates for development, signed by a CA that only you should trust:
{listing}

--- klamm
[listeners.tls]
{bind}
transport = "ssl"

[listeners.tls.ssl]
certificate = "{server}"
trust_store = "{ca}"
client_auth = "required"

--- kcat, and other clients on librdkafka
kcat -b {bootstrap} -L -X security.protocol=ssl -X ssl.ca.location={ca} \\
     -X ssl.certificate.location={client} -X ssl.key.location={client}

--- Java: client.properties
bootstrap.servers={bootstrap}
security.protocol=SSL
ssl.truststore.type=PEM
ssl.truststore.location={ca}
ssl.keystore.type=PEM
ssl.keystore.location={client}

--- Python
confluent_kafka.Producer({{
    "bootstrap.servers": "{bootstrap}", "security.protocol": "ssl", "ssl.ca.location": "{ca}",
    "ssl.certificate.location": "{client}", "ssl.key.location": "{client}",
}})
kafka.KafkaProducer(
    bootstrap_servers="{bootstrap}", security_protocol="SSL", ssl_cafile="{ca}",
    ssl_certfile="{client}", ssl_keyfile="{client}",
)
context = aiokafka.helpers.create_ssl_context(cafile="{ca}", certfile="{client}", keyfile="{client}")
aiokafka.AIOKafkaProducer(bootstrap_servers="{bootstrap}", security_protocol="SSL", ssl_context=context)
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="klamm certs",
        description="Make a development CA, a server certificate and client certificates, each with its key.",
        epilog="A CA that is already in DIR is reused; other files in DIR stay unchanged.",
    )
    parser.add_argument("directory", metavar="DIR", nargs="?", default="certs", type=Path, help="default: certs")
    parser.add_argument(
        "--host",
        dest="hosts",
        metavar="HOST",
        action="append",
        help="name or address of the server, may be repeated; default: localhost, 127.0.0.1 and ::1",
    )
    parser.add_argument(
        "--client",
        dest="clients",
        metavar="NAME",
        action="append",
        help="client that gets a certificate, may be repeated; its principal is User:CN=NAME. Default: client",
    )
    parser.add_argument(
        "--days", metavar="N", type=int, default=397, help="days for which the certificates are valid; default: 397"
    )
    parser.add_argument(
        "--port", metavar="PORT", type=int, default=9093, help="port in the printed settings; default: 9093"
    )
    parser.add_argument("--force", action="store_true", help="replace existing server and client certificates")
    return parser


def run(arguments: Sequence[str]) -> int:
    """Write the files and print how to use them. Return the exit code."""
    options = _parser().parse_args(list(arguments))
    hosts: list[str] = options.hosts or ["localhost", "127.0.0.1", "::1"]
    clients: list[str] = options.clients or ["client"]
    reserved = {"ca", "server"}
    wrong = [name for name in clients if name in reserved or not name or set(name) & set('/\\\0,+="<>#;\n')]
    if wrong:
        print(f"klamm certs: {wrong[0]!r} cannot be a client's name", file=sys.stderr)
        return _EXIT_USAGE
    if options.days < 1:
        print(f"klamm certs: --days must be at least 1, not {options.days}", file=sys.stderr)
        return _EXIT_USAGE
    # X.509 limits the length of a common name. A server's common name is its first host.
    wrong = [name for name in (hosts[0], *clients) if len(name) > 64]
    wrong += [name for name in hosts if not name]
    if wrong:
        print(f"klamm certs: {wrong[0]!r} cannot be a name: it must have 1 to 64 characters", file=sys.stderr)
        return _EXIT_USAGE
    wrong = [name for name in hosts if not _HOST.fullmatch(name)]
    if wrong:
        print(f"klamm certs: {wrong[0]!r} is neither a host name nor an address", file=sys.stderr)
        return _EXIT_USAGE
    directory: Path = options.directory.absolute()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        now = datetime.now(UTC)
        authority, listing = _authority(directory, now)
        wanted = {"server": hosts, **{client: [] for client in clients}}
        for name, its_hosts in wanted.items():
            file = directory / f"{name}.pem"
            if file.exists() and not options.force:
                listing.append(f"  {file}  (exists; --force makes a new one)")
                listing += [f"    it does not name {host}" for host in its_hosts if not _is_for(file, host)]
                continue
            subject = f"CN={its_hosts[0] if its_hosts else name}"
            _write(file, authority.issue(subject, now=now, hosts=its_hosts, days=options.days))
            listing.append(f"  {file}  {subject}, with its key" + (f", for {', '.join(hosts)}" if its_hosts else ""))
    except OSError as error:
        print(f"klamm certs: {error.filename or directory}: {error.strerror}", file=sys.stderr)
        return _EXIT_USAGE
    except ValueError as error:
        print(f"klamm certs: {error}", file=sys.stderr)
        return _EXIT_USAGE
    first = f"[{hosts[0]}]" if ":" in hosts[0] else hosts[0]
    print(
        _TEXT.format(
            listing="\n".join(listing),
            bind=_bind(hosts[0], first, options.port),
            bootstrap=f"{first}:{options.port}",
            server=directory / "server.pem",
            ca=directory / "ca.pem",
            client=directory / f"{clients[0]}.pem",
        ),
        end="",
    )
    return 0


def _bind(host: str, shown: str, port: int) -> str:
    """Return the configuration lines of a listener that clients reach by `host`.

    If `host` is not this machine's loopback, the listener binds all addresses, because the name may not resolve here.
    """
    if host in _LOOPBACK:
        return f'bind = "{shown}:{port}"'
    return f'bind = "{"[::]" if ":" in host else "0.0.0.0"}:{port}"\nadvertise = "{shown}:{port}"'


def _is_for(file: Path, host: str) -> bool:
    """Return True if a certificate names the host."""
    certificate = x509.load_pem_x509_certificate(file.read_bytes())
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    known = {*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))}
    return host in known


def _authority(directory: Path, now: datetime) -> tuple[CertificateAuthority, list[str]]:
    certificate, key = directory / "ca.pem", directory / "ca.key"
    if key.exists():
        return CertificateAuthority.load(certificate.read_bytes(), key.read_bytes()), [f"  {certificate}  (exists)"]
    authority = CertificateAuthority.create("CN=klamm development CA", now=now)
    replace_file(certificate, authority.root_pem, 0o644)
    replace_file(key, authority.identity.key_pem())
    return authority, [f"  {certificate}  clients and servers trust it", f"  {key}  keep this to yourself"]


def _write(file: Path, identity: Identity) -> None:
    # Java's PEM stores, OpenSSL and librdkafka accept key and certificate in one file.
    replace_file(file, identity.key_pem() + identity.certificate_pem)
