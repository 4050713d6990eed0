"""TLS: the transport `ssl` and the command `klamm certs`. klamm imports this module at every start."""

from __future__ import annotations

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def klamm_transports() -> Iterator[Provider]:
    """Yield the transport `ssl`: bytes under TLS."""
    yield Provider(
        "ssl",
        "klamm_ssl.transport:SslTransport",
        settings="klamm_ssl.ssl_settings:SslSettings",
        summary="TLS 1.2 or 1.3, with client certificates if wanted",
    )


@hookimpl
def klamm_commands() -> Iterator[Provider]:
    """Yield the command `klamm certs`, which makes certificates for development."""
    yield Provider("certs", "klamm_ssl.certs:run", summary="make a development CA with server and client certificates")
