"""Tests of the settings for levels and exclusions, as TOML gives them."""

import pytest

from klamm.config.planner import load_plan
from klamm.config.plugin_registry import PluginRegistry
from klamm.config.problems import ConfigError
from klamm.wire.api_keys import ApiKey
from klamm_spark.observer.policy import EVERYTHING, NOTHING, WITHOUT_RESOURCES, Policy
from klamm_spark.settings.audit import AuditSettings, api_key_of


@pytest.fixture(scope="module")
def registry():
    return PluginRegistry()


def plan_of(tmp_path, registry, text, files=False):
    file = tmp_path / "klamm.toml"
    file.write_text(text)
    return load_plan(file, registry, files=files)


def test_settings_use_kafkas_names_of_apis():
    assert api_key_of("Produce") == ApiKey.PRODUCE
    assert api_key_of("InitProducerId") == ApiKey.INIT_PRODUCER_ID
    assert api_key_of("AlterUserScramCredentials") == ApiKey.ALTER_USER_SCRAM_CREDENTIALS
    assert api_key_of("produce") is not None
    assert api_key_of("Nonsense") is None


@pytest.mark.parametrize(
    ("principal", "host", "excluded"),
    [
        ("User:probe", "1.2.3.4", True),
        ("User:alice", "10.9.9.9", True),
        ("User:alice", "::ffff:10.9.9.9", True),
        ("User:alice", "fe80::1%eth0", True),
        ("User:alice", "11.0.0.1", False),
        ("User:alice", "no address", False),
    ],
)
def test_clients_are_excluded_by_principal_and_network(tmp_path, principal, host, excluded):
    networks = ("10.0.0.0/8", "fe80::/10")
    policy = Policy(AuditSettings(spool=tmp_path, exclude_principals=("User:probe",), exclude_networks=networks))
    assert policy.excludes(principal, host) is excluded


def test_the_most_specific_level_applies(tmp_path):
    settings = AuditSettings(
        spool=tmp_path,
        level="metadata",
        apis={"Fetch": "detail", "Heartbeat": "off"},
        principals={"User:alice": "off"},
    )
    policy = Policy(settings)
    assert policy.level("User:bob", ApiKey.PRODUCE) == WITHOUT_RESOURCES
    assert policy.level("User:bob", ApiKey.FETCH) == EVERYTHING
    assert policy.level("User:bob", ApiKey.HEARTBEAT) == NOTHING
    assert policy.level("User:alice", ApiKey.FETCH) == NOTHING


def test_a_listener_can_add_to_the_common_table(tmp_path, registry):
    plan = plan_of(
        tmp_path,
        registry,
        """
        [listeners.a]
        observers = ["audit"]
        [listeners.a.audit]
        level = "off"
        [listeners.b]
        bind = "127.0.0.1:0"
        observers = ["audit"]
        [audit]
        spool = "spool"
        apis = { Fetch = "metadata" }
        [audit.spark]
        sink = "delta"
        """,
    )
    levels = [listener.observers[0].settings.level for listener in plan.listeners]
    assert levels == ["off", "detail"]
    settings = plan.listeners[1].observers[0].settings
    assert settings.spool == tmp_path / "spool"
    assert settings.apis == {"Fetch": "metadata"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "listeners.a.audit.spool: is required"),
        ('spool = "s"\nlevel = "all"', "audit.level: must be one of"),
        ('spool = "s"\napis = { Fetsch = "off" }', 'audit.apis: there is no API "Fetsch"'),
        ('spool = "s"\napis = { Fetch = "none" }', 'audit.apis: "none" is not a level'),
        ('spool = "s"\nprincipals = { "User:a" = "none" }', 'audit.principals: "none" is not a level'),
        ('spool = "s"\nexclude_networks = ["10.0.0.0/99"]', "audit.exclude_networks: "),
        (
            'spool = "s"\nprincipals = { alice = "off" }',
            'audit.principals: "alice" is not a principal such as User:alice',
        ),
        (
            'spool = "s"\nexclude_principals = ["bob"]',
            'audit.exclude_principals: "bob" is not a principal such as User:bob',
        ),
        ('spool = "s"\nnode = "a/b"', "audit.node: may have letters"),
        ('spool = "s"\non_full = "wait"', "audit.on_full: must be one of"),
        ('spool = "s"\nqueue_capacity = 0', "audit.queue_capacity: must be at least 1"),
    ],
)
def test_faults_are_reported_with_their_place(tmp_path, registry, line, message):
    with pytest.raises(ConfigError) as caught:
        plan_of(tmp_path, registry, f'[listeners.a]\nobservers = ["audit"]\n[audit]\n{line}\n')
    assert any(message in str(problem) for problem in caught.value.problems), caught.value.problems


def test_the_table_of_the_commands_is_checked_before_a_start(tmp_path, registry):
    text = '[listeners.a]\nobservers = ["audit"]\n[audit]\nspool = "s"\n[audit.spark]\nlak = "delta"\nmaster = 3\n'
    assert plan_of(tmp_path, registry, text).listeners
    with pytest.raises(ConfigError) as caught:
        plan_of(tmp_path, registry, text, files=True)
    assert [str(problem).replace(f"{tmp_path}/", "") for problem in caught.value.problems] == [
        'klamm.toml:6:1  audit.spark.lak: unknown key; did you mean "lake"?',
        "klamm.toml:7:1  audit.spark.master: must be a string, not 3",
    ]
