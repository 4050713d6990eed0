"""Tests of plans that are made from valid configurations."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import klamm_broker
import klamm_throttling
from klamm import Provider, hookimpl, setting
from klamm.config.planner import load_plan, parse_endpoint
from klamm.config.plugin_registry import PluginRegistry
from klamm.config.problems import ConfigError
from klamm.config.setting import specs_of

TWO_DOORS = """
[server]
data_dir = "data"
io_threads = 3

[listeners.internal]
bind = "127.0.0.1:9092"
api_set = "topics"

[listeners.public]
bind = "[::1]:9093"
advertise = "kafka.example.com:19093"
gates = ["connection_quota"]
api_set = "topics"
processors = 2

[listeners.public.connection_quota]
max_connections_per_ip = 7
overrides = { "10.20.0.0/16" = 2000 }

[topics]
num.partitions = 3
"log.retention.ms" = 604_800_000
"""


def test_two_listeners_share_one_handler_set_and_keep_their_own_parts(load, tmp_path):
    plan = load(TWO_DOORS)
    assert (plan.server.data_dir, plan.server.io_threads) == (tmp_path / "data", 3)
    internal, public = plan.listeners
    assert (internal.name, internal.bind, internal.advertise) == ("internal", ("127.0.0.1", 9092), None)
    assert (public.bind, public.advertise) == (("::1", 9093), ("kafka.example.com", 19093))
    assert (internal.gates, internal.settings.processors, public.settings.processors) == ((), 1, 2)
    (gate,) = public.gates
    assert (gate.name, gate.distribution) == ("connection_quota", "klamm_quotas")
    assert (gate.settings.max_connections_per_ip, gate.settings.overrides) == (7, {"10.20.0.0/16": 2000})
    assert list(plan.api_sets) == ["topics"] == sorted({internal.api_set, public.api_set})
    settings = plan.api_sets["topics"].settings
    assert (settings.num_partitions, settings.retention_ms) == (3, 604_800_000)


def test_listeners_without_an_authorizer_have_the_servers(tmp_path):
    file = tmp_path / "klamm.toml"
    own = {"a": "", "b": 'authorizer = "none"', "c": 'authorizer = "static"'}
    listeners = "".join(f'[listeners.{name}]\nbind = "127.0.0.1:0"\n{line}\n' for name, line in own.items())
    file.write_text(f'[server]\nauthorizer = "acl"\n{listeners}')
    plan = load_plan(file, PluginRegistry())
    assert [one.authorizer and one.authorizer.name for one in plan.listeners] == ["acl", None, "static"]


def test_a_provider_may_be_used_twice_under_two_names_with_different_settings(load):
    plan = load(
        """
        [listeners.a]
        bind = "127.0.0.1:0"
        api_set = "topics"
        [listeners.b]
        bind = "127.0.0.1:0"
        api_set = "second"
        [second]
        provider = "topics"
        num.partitions = 9
        """
    )
    assert plan.api_sets["topics"].settings.num_partitions == 1
    assert plan.api_sets["second"].settings.num_partitions == 9
    assert plan.api_sets["second"].found.provider.name == "topics"


def test_tables_below_a_provider_are_handler_sets_of_their_own(load):
    plan = load(
        """
        [listeners.a]
        bind = "127.0.0.1:0"
        api_set = "topics"
        [listeners.b]
        bind = "127.0.0.1:0"
        api_set = "topics.east"
        [topics]
        num.partitions = 2
        [topics.east]
        num.partitions = 9
        """,
        "topics.east.broker.rack=r1",
    )
    assert plan.api_sets["topics"].settings.num_partitions == 2
    east = plan.api_sets["topics.east"]
    assert (east.settings.num_partitions, east.settings.rack, east.found.provider.name) == (9, "r1", "topics")


@pytest.mark.parametrize(
    ("line", "attribute", "value"),
    [
        ("num.partitions = 4", "num_partitions", 4),
        ('"num.partitions" = 4', "num_partitions", 4),
        ("num = { partitions = 4 }", "num_partitions", 4),
        ("ratio = 1", "ratio", 1.0),
        ("delete.topic.enable = false", "enabled", False),
        ('codec = "gzip"', "codec", "gzip"),
        ('log.cleanup.policy = ["compact", "delete"]', "policies", ("compact", "delete")),
        ("limits = { a = 1, b.c = 2 }", "limits", None),
        ('certificate = "/tls/server.pem"', "certificate", Path("/tls/server.pem")),
        ('broker.rack = "r1"', "rack", "r1"),
    ],
)
def test_every_type_of_setting_is_read(load, problems, line, attribute, value):
    text = f'[listeners.a]\napi_set = "topics"\n[topics]\n{line}\n'
    if value is None:
        assert problems(text) == ['klamm.toml:4:1  topics.limits: "b": must be an integer, not a table']
    else:
        assert getattr(load(text).api_sets["topics"].settings, attribute) == value


def test_paths_are_relative_to_the_file(load, tmp_path):
    plan = load('[listeners.a]\napi_set = "topics"\n[topics]\ncertificate = "tls/server.pem"\n')
    assert plan.api_sets["topics"].settings.certificate == tmp_path / "tls" / "server.pem"


@pytest.mark.parametrize(
    ("override", "read", "value"),
    [
        ("listeners.default.processors=2", lambda plan: plan.listeners[0].settings.processors, 2),
        ("num.network.threads=2", lambda plan: plan.listeners[0].settings.processors, 2),
        ("server.io_threads=4", lambda plan: plan.server.io_threads, 4),
        ("num.io.threads=4", lambda plan: plan.server.io_threads, 4),
        ("log.dirs=/somewhere", lambda plan: plan.server.data_dir, Path("/somewhere")),
        ("topics.num.partitions=3", lambda plan: plan.api_sets["topics"].settings.num_partitions, 3),
        ("num.partitions=3", lambda plan: plan.api_sets["topics"].settings.num_partitions, 3),
        ("num.partitions='3'", lambda plan: plan.api_sets["topics"].settings.num_partitions, 3),
        ("delete.topic.enable=FALSE", lambda plan: plan.api_sets["topics"].settings.enabled, False),
        ("topics.ratio='0.25'", lambda plan: plan.api_sets["topics"].settings.ratio, 0.25),
        (
            "log.cleanup.policy=compact,delete",
            lambda plan: plan.api_sets["topics"].settings.policies,
            ("compact", "delete"),
        ),
        ("broker.rack=7", lambda plan: plan.api_sets["topics"].settings.rack, "7"),
        ("broker.rack=a=b", lambda plan: plan.api_sets["topics"].settings.rack, "a=b"),
    ],
)
def test_the_command_line_sets_keys_by_path_or_by_kafkas_name(load, override, read, value):
    assert read(load(None, "listeners.default.api_set=topics", override)) == value
    assert read(load(None, override, "listeners.default.api_set=topics")) == value, "their order does not count"


def test_the_command_line_precedes_every_spelling_in_the_file(load):
    for spelling in ("num.partitions = 2", '"num.partitions" = 2', "num = { partitions = 2 }"):
        plan = load(f'[listeners.a]\napi_set = "topics"\n[topics]\n{spelling}\n', "num.partitions=5")
        assert plan.api_sets["topics"].settings.num_partitions == 5


def test_a_key_of_kafka_about_listeners_applies_to_all_listeners(load):
    plan = load(TWO_DOORS, "connections.max.idle.ms=5")
    assert [listener.settings.connections_max_idle_ms for listener in plan.listeners] == [5, 5]


def test_settings_of_a_part_can_be_set(load):
    plan = load(TWO_DOORS, "listeners.public.connection_quota.max_connections_per_ip=1")
    assert plan.listeners[1].gates[0].settings.max_connections_per_ip == 1


def test_settings_of_the_request_scheduler_are_below_the_server(load):
    text = '[server]\nrequest_scheduler = "lanes"\n[server.lanes]\nlanes = 4\n[listeners.a]\napi_set = "echo"\n'
    assert load(text).request_scheduler.settings.lanes == 4


def test_bind_moves_the_first_listener_and_data_dir_is_relative_to_the_caller(load, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path.parent)
    plan = load(TWO_DOORS, bind="0.0.0.0:0", data_dir="here")
    assert [listener.bind for listener in plan.listeners] == [("0.0.0.0", 0), ("::1", 9093)]
    assert plan.server.data_dir == tmp_path.parent / "here"


def test_without_a_file_each_plan_has_one_new_listener(load):
    load(None, "listeners.default.api_set=echo", "listeners.default.processors=3")
    plan = load(None, "listeners.default.api_set=echo")
    (listener,) = plan.listeners
    assert (listener.name, listener.bind, listener.settings.processors) == ("default", ("127.0.0.1", 9092), 1)
    assert (plan.server.data_dir, plan.source) == (None, None)


def test_two_listeners_may_have_port_0(load):
    text = '[listeners.{0}]\nbind = "127.0.0.1:0"\napi_set = "echo"\n'
    assert len(load(text.format("a") + text.format("b")).listeners) == 2


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [("localhost:1", ("localhost", 1)), ("[::]:65535", ("::", 65535)), (":9092", ("", 9092)), ("[::1]:0", ("::1", 0))],
)
def test_endpoints_are_parsed(text, endpoint):
    assert parse_endpoint(text) == endpoint


@pytest.mark.parametrize(
    "text",
    [
        "localhost",
        "localhost:",
        "localhost:x",
        "::1:9092",
        "a:65536",
        "a:-1",
        "a:9\N{SUPERSCRIPT TWO}",
        "a:\N{FULLWIDTH DIGIT NINE}",
        "[::1:9092",
        "::1]:9092",
        "[a]:1",
        "",
    ],
)
def test_text_that_is_not_an_endpoint_is_refused(text):
    with pytest.raises(ValueError, match="must be HOST:PORT"):
        parse_endpoint(text)


def names(parts):
    return [part.name for part in parts]


class GuardedPlugin:
    @hookimpl
    def klamm_api_sets(self):
        yield Provider("guarded", "nowhere:Guarded", gates=("connection_quota", "absent"), throttles=("absent",))


def test_a_handler_set_has_default_gates_and_throttles_for_its_listeners(load, plugins):
    plugins.add(GuardedPlugin(), "guarded")
    plan = load("""
        [listeners.a]
        bind = "127.0.0.1:0"
        api_set = "guarded"
        [listeners.a.connection_quota]
        max_connections = 3
        [listeners.b]
        bind = "127.0.0.1:0"
        api_set = "guarded"
        gates = []
        [listeners.c]
        bind = "127.0.0.1:0"
        api_set = "other"
        gates = ["creation_rate"]
        [listeners.d]
        bind = "127.0.0.1:0"
        api_set = "other"
        [other]
        provider = "guarded"
        """)
    a, b, c, d = plan.listeners
    # Plugins that are not installed are left out.
    assert (names(a.gates), names(a.throttles)) == (["connection_quota"], [])
    assert a.gates[0].settings.max_connections == 3
    assert names(b.gates) == []
    assert names(c.gates) == ["creation_rate"]
    assert names(d.gates) == ["connection_quota"]


def test_an_empty_list_on_the_command_line_removes_the_default_gates(load, plugins):
    plugins.add(GuardedPlugin(), "guarded")
    text = '[listeners.a]\nbind = "127.0.0.1:0"\napi_set = "guarded"\n'
    assert names(load(text, "listeners.a.gates=").listeners[0].gates) == []


def test_the_broker_has_the_quotas_of_kafka_by_default(load, plugins):
    plugins.add(klamm_broker, "klamm_broker")
    plugins.add(klamm_throttling, "klamm_throttling")
    (listener,) = load(None).listeners
    assert names(listener.gates) == ["connection_quota", "creation_rate"]
    assert names(listener.throttles) == ["client_quota"]


GATED = """
[listeners.a]
bind = "127.0.0.1:0"
api_set = "topics"
gates = ["connection_quota", "creation_rate"]
[listeners.Second]
bind = "127.0.0.1:0"
api_set = "topics"
gates = ["connection_quota"]
[listeners.Second.connection_quota]
max_connections_per_ip = 1
[listeners.open]
bind = "127.0.0.1:0"
api_set = "topics"
"""


def test_kafkas_names_of_gate_settings_apply_to_every_listener_with_the_gate(load):
    a, second, door = load(
        GATED,
        "max.connections.per.ip=5",
        "max.connections=50",
        "max.connections.per.ip.overrides=127.0.0.1:10, ::1:5,10.0.0.0/8:7",
        "max.connection.creation.rate=9",
        "quota.window.num=6",
    ).listeners
    for listener in (a, second):
        quota = listener.gates[0].settings
        assert (quota.max_connections_per_ip, quota.broker_max_connections) == (5, 50)
        assert quota.overrides == {"127.0.0.1": 10, "::1": 5, "10.0.0.0/8": 7}
    rate = a.gates[1].settings
    assert (rate.broker_max_connection_creation_rate, rate.quota_window_num) == (9, 6)
    assert door.gates == ()


@pytest.mark.parametrize("name", ["Second", "second"])
def test_kafkas_name_of_one_listeners_limit_applies_to_that_listener(load, name):
    a, second, _open = load(GATED, f"listener.name.{name}.max.connections=3").listeners
    assert second.gates[0].settings.max_connections == 3
    assert a.gates[0].settings.max_connections > 3


def test_gates_may_be_named_later_than_their_settings(load):
    (listener,) = load(
        None, "max.connections=3", "listeners.default.gates=connection_quota", "listeners.default.api_set=echo"
    ).listeners
    assert listener.gates[0].settings.broker_max_connections == 3


def test_kafkas_name_of_a_window_applies_to_all_parts_with_it(load, plugins):
    plugins.add(klamm_broker, "klamm_broker")
    plugins.add(klamm_throttling, "klamm_throttling")
    (listener,) = load(None, "quota.window.num=3", "controller.quota.window.num=4").listeners
    assert listener.gates[1].settings.quota_window_num == listener.throttles[0].settings.quota_window_num == 3
    assert listener.throttles[0].settings.controller_quota_window_num == 4


def test_nodes_have_the_ports_of_their_listener(load, plugins):
    plugins.add(klamm_broker, "klamm_broker")
    text = "[broker]\nnodes = 3\n[listeners.one]\nbind = '127.0.0.1:9092'\nnode_ports = [9500, 9600]\n"
    text += "[listeners.two]\nbind = '127.0.0.1:9700'\nadvertise = 'proxy:1000'\nnode_ports = [9800, 9900]\n"
    one = [plan for plan in load(text).listeners if plan.configured_as == "one" or plan.name == "one"]
    two = [plan for plan in load(text).listeners if plan.configured_as == "two" or plan.name == "two"]
    assert [plan.bind[1] for plan in one] == [9092, 9500, 9600]
    assert [plan.bind[1] for plan in two] == [9700, 9800, 9900]
    assert [plan.advertise for plan in two] == [("proxy", 1000), ("proxy", 1001), ("proxy", 1002)]


def test_a_key_of_kafka_with_another_name_in_klamm_is_also_reported_for_set():
    with pytest.raises(ConfigError) as caught:
        load_plan(None, PluginRegistry(), ["control.plane.listener.name=internal"])
    (problem,) = caught.value.problems
    assert problem.message == (
        'unknown key; "control.plane.listener.name" is the key control_listeners of [server.priority]'
    )


def test_a_settings_class_with_dotted_keys_has_kafkas_names():
    @dataclass(frozen=True)
    class Base:
        num_partitions: int = setting(1, doc="How many.")

    @dataclass(frozen=True, slots=True)
    class Dotted(Base):
        DOTTED_KEYS = True
        broker_rack: str = setting("", doc="Where.")
        plain: str = setting("", name="as_it_is", doc="With a name of its own.")

    assert [(spec.name, spec.kafka) for spec in specs_of(Dotted).values()] == [
        ("num.partitions", "num.partitions"),
        ("broker.rack", "broker.rack"),
        ("as_it_is", "as_it_is"),
    ]
    assert [(spec.name, spec.kafka) for spec in specs_of(Base).values()] == [("num_partitions", None)]


def test_a_reload_keeps_parts_whose_settings_are_equal(load):
    plan = load(TWO_DOORS).api_sets["topics"]
    other = replace(plan, parts={"inner": (plan,)})
    assert plan.with_live(other, {"num.partitions"}) == other
