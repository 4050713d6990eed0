"""Arguments of `EmbeddedServer` that are easily wrong either work, or the error says what to write instead."""

import pytest

import klamm_echo
from klamm import Provider, hookimpl
from klamm.config.planner import load_plan
from klamm.config.plugin_registry import PluginRegistry
from klamm.config.problems import ConfigError
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from klamm.wire.messages.metadata import MetadataRequest

JOIN = JoinGroupRequest("readers", 10_000, 10_000, "", None, "consumer", [JoinGroupRequestProtocol("range", b"")])
ECHO = ["listeners.default.api_set=echo"]


def test_an_installed_plugin_may_also_be_passed_as_an_argument():
    with EmbeddedServer(ECHO, plugins=[klamm_echo]) as server, RawClient(server.address()) as client:
        assert client.call(MetadataRequest(topics=None), 12).cluster_id == "klamm-echo"


def test_an_unknown_listener_is_named_with_the_known_ones():
    with EmbeddedServer(ECHO) as server:
        with pytest.raises(KeyError, match='no listener "defualt"; did you mean "default"'):
            server.address("defualt")
        with pytest.raises(KeyError, match='no api set "broker".*; there is echo'):
            server.api_set("broker")


def test_there_is_no_address_before_the_start():
    server = EmbeddedServer(ECHO)
    for ask in (server.address, lambda: server.bootstrap, lambda: server.api_set("echo")):
        with pytest.raises(RuntimeError, match="has not been started"):
            ask()
    server.stop()


def test_a_server_starts_once():
    server = EmbeddedServer(ECHO)
    with server:
        with pytest.raises(RuntimeError, match="the server is running; an EmbeddedServer can start only once"):
            server.start()
        assert server.bootstrap
    with pytest.raises(
        RuntimeError, match="the server is stopped; an EmbeddedServer can start only once, make another"
    ):
        server.start()


def test_paths_may_be_strings(tmp_path):
    file = tmp_path / "klamm.toml"
    file.write_text('[listeners.one]\nbind = "127.0.0.1:0"\napi_set = "echo"\n')
    with EmbeddedServer(file=str(file), data_dir=str(tmp_path / "data")) as server:
        assert server.server.data_dir == tmp_path / "data"


def test_a_single_setting_may_be_passed_without_a_list():
    with pytest.raises(TypeError, match=r"settings must be a list of KEY=VALUE: \['a=b'\], not 'a=b'"):
        EmbeddedServer("a=b")


def delay_ms(server):
    return server.plan.api_sets["broker"].settings.group_initial_rebalance_delay_ms


def test_a_new_group_does_not_wait_for_more_members(tmp_path):
    assert delay_ms(EmbeddedServer()) == 0
    assert delay_ms(EmbeddedServer(["group.initial.rebalance.delay.ms=40"])) == 40
    file = tmp_path / "klamm.toml"
    table = '[listeners.one]\nbind = "127.0.0.1:0"\n[broker]\ngroup.initial.rebalance.delay.ms = 50\n'
    file.write_text(table, encoding="utf-8")
    assert delay_ms(EmbeddedServer(file=file)) == 50
    served = load_plan(None, PluginRegistry(), bind="127.0.0.1:0")
    assert served.api_sets["broker"].settings.group_initial_rebalance_delay_ms == 3000


def test_a_plugin_of_one_server_does_not_appear_in_the_next():
    class Plugin:
        @hookimpl
        def klamm_api_sets(self):
            yield Provider("made-up", "klamm_echo.api_set:EchoApiSet")

    settings = ["listeners.default.api_set=made-up"]
    EmbeddedServer(settings, plugins=[Plugin()])
    with pytest.raises(ConfigError, match="made-up"):
        EmbeddedServer(settings)


def test_plugins_that_are_installed_meanwhile_are_found(tmp_path, monkeypatch):
    """Servers of one process share the installed plugins."""
    settings = ["listeners.default.gates=['made-up-gate']"]
    with pytest.raises(ConfigError, match="made-up-gate"):
        EmbeddedServer(settings)
    hook = "@hookimpl\ndef klamm_connection_gates():\n    yield Provider('made-up-gate', 'klamm.api:ConnectionGate')\n"
    (tmp_path / "made_up_shared_gate.py").write_text(f"from klamm import Provider, hookimpl\n\n{hook}")
    info = tmp_path / "made_up_gate-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: made-up-gate\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[klamm]\ngate = made_up_shared_gate\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    (gate,) = EmbeddedServer(settings).plan.listeners[0].gates
    assert gate.name == "made-up-gate"
    monkeypatch.setenv("KLAMM_LOAD_PLUGINS", "")
    with pytest.raises(ConfigError, match="made-up-gate"):
        EmbeddedServer(settings)


def test_a_seed_repeats_the_random_numbers_of_a_server_also_after_a_restart():
    def ids(seed):
        with EmbeddedServer(seed=seed) as server:
            server.create_topic("first")
            server.restart()
            server.create_topic()
            with RawClient(server.address()) as client:
                found = client.call(MetadataRequest(topics=None), 12)
                member = client.call(JOIN, 5).member_id
            return found.cluster_id, sorted((each.name, each.topic_id) for each in found.topics), member

    seventh = ids(7)
    assert ids(7) == seventh != ids(8)
    assert len({topic_id for _name, topic_id in seventh[1]}) == 2
