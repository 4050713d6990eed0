"""The authenticator `sasl`, its mechanisms and its credential stores, and `klamm users`.

klamm imports this module at every start and calls its hooks.
"""

from __future__ import annotations

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def klamm_authenticators() -> Iterator[Provider]:
    """Yield the authenticator `sasl`, which works over any transport."""
    yield Provider(
        "sasl",
        "klamm_sasl.factory:SaslAuthenticatorFactory",
        settings="klamm_sasl.sasl_settings:SaslSettings",
        summary="SaslHandshake and SaslAuthenticate, with re-authentication",
    )


@hookimpl
def klamm_sasl_mechanisms() -> Iterator[Provider]:
    """Yield the mechanisms of Apache Kafka, and EXTERNAL."""
    yield Provider("PLAIN", "klamm_sasl.plain:PlainMechanism", summary="user and password, sent in clear text")
    for digest in ("256", "512"):
        yield Provider(
            f"SCRAM-SHA-{digest}",
            f"klamm_sasl.scram:ScramSha{digest}",
            summary="user and password, which is never sent; delegation tokens",
        )
    yield Provider(
        "OAUTHBEARER",
        "klamm_sasl.oauthbearer:OAuthBearerMechanism",
        settings="klamm_sasl.sasl_settings:OAuthBearerSettings",
        summary="JWTs that an identity provider has signed",
    )
    yield Provider(
        "GSSAPI",
        "klamm_sasl.gssapi_mechanism:GssapiMechanism",
        settings="klamm_sasl.sasl_settings:GssapiSettings",
        summary="Kerberos; needs klamm[gssapi]",
    )
    yield Provider(
        "EXTERNAL",
        "klamm_sasl.external:ExternalMechanism",
        summary="the principal that the transport has verified, e.g. by a client certificate",
    )


@hookimpl
def klamm_credential_stores() -> Iterator[Provider]:
    """Yield the stores of users and their SCRAM verifiers."""
    yield Provider(
        "broker", "klamm_sasl.stores.broker:BrokerStore", summary="users that AlterUserScramCredentials has stored"
    )
    yield Provider(
        "file",
        "klamm_sasl.stores.file:FileStore",
        settings="klamm_sasl.sasl_settings:FileStoreSettings",
        summary="a file of SCRAM verifiers, made by `klamm users`, read again when it changes",
    )
    yield Provider(
        "callable",
        "klamm_sasl.stores.function:CallableStore",
        settings="klamm_sasl.sasl_settings:CallableStoreSettings",
        summary="a Python function that checks passwords or knows SCRAM verifiers",
    )


@hookimpl
def klamm_commands() -> Iterator[Provider]:
    """Yield the command `klamm users`."""
    yield Provider("users", "klamm_sasl.users_command:main", summary="add, list and remove users of a file")
