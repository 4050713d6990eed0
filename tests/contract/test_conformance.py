"""Each registered part of klamm passes the conformance suite of its kind.

A function with `@case` runs the suite for one provider. A provider without a case fails the tests, and so does a case
without a provider.
"""

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import scramp
from joserfc import jws
from joserfc.jwk import ECKey

from klamm import KafkaPrincipal, ProviderKind
from klamm.acl import AclOperation, ResourceType
from klamm.config.plugin_registry import PluginRegistry, load_factory
from klamm.sasl import SCRAM_CREDENTIALS, CredentialStore, ScramCredential, ScramMechanism
from klamm.testing import (
    CertificateFiles,
    Decision,
    ManualClock,
    Playbook,
    check_api_set,
    check_assigner,
    check_authenticator,
    check_authorizer,
    check_credential_store,
    check_extension,
    check_filter,
    check_gate,
    check_observer,
    check_sasl_mechanism,
    check_scheduler,
    check_throttle,
    check_transport,
)
from klamm.wire.headers import encode_request_header
from klamm.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from klamm.wire.messages.sasl_handshake import SaslHandshakeRequest
from klamm_filters.records.validation_settings import RecordRuleSettings
from klamm_sasl.factory import SaslAuthenticatorFactory
from klamm_sasl.plain import PlainMechanism
from klamm_sasl.sasl_settings import SaslSettings
from klamm_sasl.stores.broker import BrokerStore
from tests.otlp_collector import Collector
from tests.sasl_client import plain

REGISTRY = PluginRegistry(environment={"KLAMM_LOAD_PLUGINS": ""})
K = ProviderKind
CASES = {}


def case(kind, name):
    def add(function):
        CASES[kind, name] = function
        return function

    return add


def part(kind, name, **settings):
    """Return the factory of a provider, and settings of its class."""
    found = REGISTRY.resolve(kind, name)
    settings_class = found.provider.load_settings()
    return load_factory(found), settings_class(**settings) if settings_class is not None else None


@pytest.mark.parametrize(
    "key",
    sorted(((one.kind, one.provider.name) for one in REGISTRY.all() if one.kind is not K.COMMAND), key=str),
    ids=lambda key: f"{key[0].label}-{key[1]}".replace(" ", "_"),
)
def test_a_part_of_klamm_passes(key, tmp_path):
    CASES[key](tmp_path)


def test_every_part_has_a_case_and_every_case_a_part():
    parts = {(one.kind, one.provider.name) for one in REGISTRY.all() if one.kind is not K.COMMAND}
    missing = [f'@case(K.{kind.name}, "{name}")' for kind, name in sorted(parts - CASES.keys(), key=str)]
    assert not missing, f"add a function to {Path(__file__).name} that calls the part's suite: {', '.join(missing)}"
    assert not CASES.keys() - parts


# ---- transports


@case(K.TRANSPORT, "plaintext")
def plaintext(folder):
    check_transport(*part(K.TRANSPORT, "plaintext"))


@case(K.TRANSPORT, "ssl")
def ssl_(folder):
    files = CertificateFiles(folder)
    client = files.client_context(files.client("alice"))
    check_transport(
        *part(K.TRANSPORT, "ssl", certificate=files.server, trust_store=files.ca, client_auth="required"),
        connect=lambda sock: client.wrap_socket(sock, server_hostname="localhost"),
    )


# ---- gates, throttles, dispatch


@case(K.CONNECTION_GATE, "connection_quota")
def connection_quota(folder):
    check_gate(*part(K.CONNECTION_GATE, "connection_quota"))
    factory, settings = part(K.CONNECTION_GATE, "connection_quota", max_connections_per_ip=5, max_connections=50)
    check_gate(factory, settings, other_settings=replace(settings, max_connections_per_ip=7))


@case(K.CONNECTION_GATE, "creation_rate")
def creation_rate(folder):
    check_gate(*part(K.CONNECTION_GATE, "creation_rate", connection_creation_rate=10))


@case(K.CONNECTION_GATE, "handshake_limit")
def handshake_limit(folder):
    check_gate(*part(K.CONNECTION_GATE, "handshake_limit"))


@case(K.CONNECTION_GATE, "authentication_penalty")
def authentication_penalty(folder):
    check_gate(*part(K.CONNECTION_GATE, "authentication_penalty"))


@case(K.THROTTLE, "client_quota")
def client_quota(folder):
    check_throttle(*part(K.THROTTLE, "client_quota"))


@case(K.PROCESSOR_ASSIGNER, "round_robin")
def round_robin(folder):
    check_assigner(*part(K.PROCESSOR_ASSIGNER, "round_robin"))


@case(K.PROCESSOR_ASSIGNER, "least_loaded")
def least_loaded(folder):
    check_assigner(*part(K.PROCESSOR_ASSIGNER, "least_loaded"))


@case(K.REQUEST_SCHEDULER, "fifo")
def fifo(folder):
    check_scheduler(*part(K.REQUEST_SCHEDULER, "fifo"))


@case(K.REQUEST_SCHEDULER, "priority")
def priority(folder):
    check_scheduler(*part(K.REQUEST_SCHEDULER, "priority"))


@case(K.REQUEST_SCHEDULER, "fair")
def fair(folder):
    check_scheduler(*part(K.REQUEST_SCHEDULER, "fair"))


# ---- filters, observers, extensions, handler sets


@case(K.REQUEST_FILTER, "audit")
def audit_filter(folder):
    check_filter(*part(K.REQUEST_FILTER, "audit", spool=folder))


@case(K.REQUEST_FILTER, "faults")
def faults(folder):
    check_filter(*part(K.REQUEST_FILTER, "faults"))


@case(K.REQUEST_FILTER, "deny_apis")
def deny_apis(folder):
    check_filter(*part(K.REQUEST_FILTER, "deny_apis", deny=("*",)))
    check_filter(*part(K.REQUEST_FILTER, "deny_apis", deny=("*",), except_principals=("User:ANONYMOUS",)))


@case(K.REQUEST_FILTER, "client_limits")
def client_limits(folder):
    check_filter(*part(K.REQUEST_FILTER, "client_limits"))
    check_filter(*part(K.REQUEST_FILTER, "client_limits", client_ids=("none",), disconnect=True))


@case(K.REQUEST_FILTER, "rewrite_client_id")
def rewrite_client_id(folder):
    check_filter(*part(K.REQUEST_FILTER, "rewrite_client_id"))


@case(K.REQUEST_FILTER, "topic_prefix")
def topic_prefix(folder):
    check_filter(*part(K.REQUEST_FILTER, "topic_prefix", prefix="a."))


@case(K.REQUEST_FILTER, "record_validation")
def record_validation(folder):
    schema = folder / "schema.json"
    schema.write_text("{}")
    rules = {"all": RecordRuleSettings(topics=("*",), value_schema=schema)}
    check_filter(*part(K.REQUEST_FILTER, "record_validation", rules=rules))


@case(K.REQUEST_FILTER, "record_encryption")
def record_encryption(folder):
    keys = folder / "keys.toml"
    keys.write_text(f'current = "k"\n[keys]\nk = "{"A" * 43}="\n')
    check_filter(*part(K.REQUEST_FILTER, "record_encryption", keys_file=keys))


@case(K.REQUEST_OBSERVER, "audit")
def audit(folder):
    check_observer(*part(K.REQUEST_OBSERVER, "audit", spool=folder))


@case(K.REQUEST_OBSERVER, "recording")
def recording(folder):
    check_observer(*part(K.REQUEST_OBSERVER, "recording"))


@case(K.REQUEST_OBSERVER, "otlp_traces")
def otlp_traces(folder):
    with closing(Collector()) as collector:
        check_observer(
            *part(K.REQUEST_OBSERVER, "otlp_traces", endpoint=f"{collector.url}/v1/traces", sample_ratio=1.0)
        )
        assert collector.spans()


@case(K.EXTENSION, "otlp_metrics")
def otlp_metrics(folder):
    with closing(Collector()) as collector:
        check_extension(*part(K.EXTENSION, "otlp_metrics", endpoint=f"{collector.url}/v1/metrics"))
        assert collector.bodies


@case(K.EXTENSION, "prometheus")
def prometheus(folder):
    check_extension(*part(K.EXTENSION, "prometheus", bind="127.0.0.1:0"))


@case(K.EXTENSION, "control")
def control(folder):
    check_extension(*part(K.EXTENSION, "control", bind="127.0.0.1:0", token="secret"))


@case(K.EXTENSION, "schema_registry")
def schema_registry(folder):
    check_extension(*part(K.EXTENSION, "schema_registry", bind="127.0.0.1:0"))


@case(K.EXTENSION, "console")
def console(folder):
    check_extension(*part(K.EXTENSION, "console", bind="127.0.0.1:0"))


@case(K.API_SET, "echo")
def echo(folder):
    check_api_set(*part(K.API_SET, "echo"))


@case(K.API_SET, "broker")
def broker(folder):
    check_api_set(*part(K.API_SET, "broker"))


@case(K.API_SET, "gateway")
def gateway(folder):
    pytest.skip("needs a cluster to forward to: tests/interop has one")


@case(K.API_SET, "control")
def control_of_nodes(folder):
    pytest.skip("needs a broker beside it: tests/unit/cluster has one")


# ---- authorizers


@case(K.AUTHORIZER, "acl")
def acl(folder):
    admin = Decision("User:admin", AclOperation.WRITE, ResourceType.TOPIC, "orders", True)
    check_authorizer(
        *part(K.AUTHORIZER, "acl", super_users=("User:admin",)),
        other_settings=part(K.AUTHORIZER, "acl", super_users=("User:root",))[1],
        decisions=[admin, admin._replace(principal="User:alice", allowed=False)],
    )


@case(K.AUTHORIZER, "static")
def static(folder):
    rule = Decision("User:alice", AclOperation.READ, ResourceType.TOPIC, "orders", True)
    check_authorizer(
        *part(K.AUTHORIZER, "static", rules=("allow User:alice READ topic:orders",)),
        other_settings=part(K.AUTHORIZER, "static", rules=("allow User:bob READ topic:orders",))[1],
        decisions=[rule, rule._replace(principal="User:bob", allowed=False)],
    )


# ---- authentication

ALICE = KafkaPrincipal("alice")
USERS = {"alice": "secret", "bob": "other secret"}
VERIFIERS = {
    user: {one: ScramCredential.from_password(one, password, b"0123456789abcdef") for one in ScramMechanism}
    for user, password in USERS.items()
}
WRONG_LOGINS = [plain("alice", "wrong"), plain("carol", "secret"), plain("alice", "")]


class Users(CredentialStore):
    """The store of the users that this file's cases know."""

    def scram_credential(self, user, mechanism):
        return VERIFIERS.get(user, {}).get(mechanism)


def check_password(user, password):
    return password == USERS[user] if user in USERS else None


def scram(mechanism, password):
    """Return a client of SCRAM from another implementation."""

    def client():
        one = scramp.ScramClient([mechanism], "alice", password)
        one.set_server_first((yield one.get_client_first().encode()).decode())
        yield one.get_client_final().encode()

    return client


def frames(mechanism, *tokens):
    """Return the frames that a client sends to the authenticator `sasl`."""
    messages = [(SaslHandshakeRequest(mechanism), 1), *((SaslAuthenticateRequest(token), 2) for token in tokens)]
    return [encode_request_header(one.API_KEY, version, 1, "c") + one.encode(version) for one, version in messages]


@case(K.AUTHENTICATOR, "sasl")
def sasl(folder):
    settings = SaslSettings(mechanisms=("PLAIN",), credential_stores=("users",))
    check_authenticator(
        lambda given: SaslAuthenticatorFactory(given, (PlainMechanism(None),), (Users(None),)),
        settings,
        playbooks=[
            Playbook(frames("PLAIN", plain("alice", "secret")), ALICE),
            *(Playbook(frames("PLAIN", token), None) for token in WRONG_LOGINS),
            Playbook(frames("UNKNOWN", plain("alice", "secret")), None),
        ],
    )


@case(K.SASL_MECHANISM, "PLAIN")
def plain_mechanism(folder):
    check_sasl_mechanism(
        *part(K.SASL_MECHANISM, "PLAIN"),
        stores=lambda: [Users(None)],
        playbooks=[Playbook([plain("alice", "secret")], ALICE), *(Playbook([token], None) for token in WRONG_LOGINS)],
    )


def scram_mechanism(name):
    check_sasl_mechanism(
        *part(K.SASL_MECHANISM, name),
        stores=lambda: [Users(None)],
        playbooks=[Playbook(scram(name, "secret"), ALICE), Playbook(scram(name, "wrong"), None)],
    )


for each in ScramMechanism:
    case(K.SASL_MECHANISM, each.mechanism_name)(lambda folder, name=each.mechanism_name: scram_mechanism(name))


@case(K.SASL_MECHANISM, "OAUTHBEARER")
def oauthbearer(folder):
    key = ECKey.generate_key("P-256", {"kid": "ec"})
    other = ECKey.generate_key("P-256", {"kid": "ec"})
    now_s = ManualClock().wall_ms() // 1000
    (folder / "jwks.json").write_text(json.dumps({"keys": [key.as_dict(private=False)]}))

    def token(signer, expires_s):
        claims = json.dumps(
            {"sub": "alice", "aud": "kafka", "iss": "idp", "iat": now_s - 10, "exp": expires_s}
        ).encode()
        header = {"alg": "ES256", "kid": "ec"}
        signed = jws.serialize_compact(header, claims, signer, algorithms=["ES256"])
        return [f"n,,\x01auth=Bearer {signed}\x01\x01".encode()]

    check_sasl_mechanism(
        *part(
            K.SASL_MECHANISM,
            "OAUTHBEARER",
            jwks_file=folder / "jwks.json",
            expected_audience=("kafka",),
            expected_issuer="idp",
        ),
        playbooks=[
            Playbook(token(key, now_s + 600), ALICE),
            Playbook(token(key, now_s - 600), None),
            Playbook(token(other, now_s + 600), None),
        ],
    )


@case(K.SASL_MECHANISM, "EXTERNAL")
def external(folder):
    made = part(K.SASL_MECHANISM, "EXTERNAL")
    check_sasl_mechanism(*made, playbooks=[Playbook([b""], ALICE), Playbook([b"bob"], None)], proved=ALICE)
    check_sasl_mechanism(*made, playbooks=[Playbook([b""], None), Playbook([b"alice"], None)])


@case(K.SASL_MECHANISM, "GSSAPI")
def gssapi(folder):
    pytest.skip("needs a KDC: tests/interop/test_gssapi.py has one")


@case(K.CREDENTIAL_STORE, "file")
def file_store(folder):
    rows = [f"{user}:{one.to_text()}" for user, known in VERIFIERS.items() for one in known.values()]
    (folder / "users").write_text("\n".join(rows) + "\n")
    (folder / "users").chmod(0o600)
    check_credential_store(*part(K.CREDENTIAL_STORE, "file", path=folder / "users"), passwords=USERS)


class SeededBrokerStore(BrokerStore):
    """The broker's user store, which already has the users of this file."""

    def open(self, listener):
        rows = {one.row_key(user): made.to_row() for user, known in VERIFIERS.items() for one, made in known.items()}
        listener.services.shared.table(SCRAM_CREDENTIALS).update(rows)
        super().open(listener)


@case(K.CREDENTIAL_STORE, "broker")
def broker_store(folder):
    check_credential_store(SeededBrokerStore, passwords=USERS)


@case(K.CREDENTIAL_STORE, "callable")
def callable_store(folder):
    settings = part(K.CREDENTIAL_STORE, "callable", password=f"{__name__}:check_password")
    check_credential_store(*settings, passwords=USERS)
