"""Tests of the report about an invalid configuration: file, line, column, key, problem, and suggestion."""

import re

import pytest

import klamm_broker
import klamm_throttling
from klamm.config.planner import load_plan
from klamm.config.problems import ConfigError
from klamm.config.tables import position_of

NOWHERE = ModuleNotFoundError("No module named 'nowhere'", name="nowhere")
"""Python 3.15 also prints the name."""
ECHO = '[listeners.a]\napi_set = "echo"\n'
EAST = '[listeners.a]\napi_set = "topics.east"\n[topics.east]\n'
TOPICS = '[listeners.a]\napi_set = "topics"\n[topics]\n'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            ECHO + 'authenticater = "sasl"\n',
            'klamm.toml:3:1  listeners.a.authenticater: unknown key; did you mean "authenticator"?',
        ),
        (ECHO + "  processors = 0\n", "klamm.toml:3:3  listeners.a.processors: must be at least 1, not 0"),
        (ECHO + "processors = true\n", "klamm.toml:3:1  listeners.a.processors: must be an integer, not true"),
        (ECHO + "processors = 1.5\n", "klamm.toml:3:1  listeners.a.processors: must be an integer, not 1.5"),
        (ECHO + "gates = 'x'\n", "klamm.toml:3:1  listeners.a.gates: must be a list, not 'x'"),
        (ECHO + "gates = [1]\n", "klamm.toml:3:1  listeners.a.gates: item 1: must be a string, not 1"),
        (ECHO + "transport = ['x']\n", "klamm.toml:3:1  listeners.a.transport: must be a string, not a list"),
        (
            ECHO + 'dispatch = "inlin"\n',
            'klamm.toml:3:1  listeners.a.dispatch: must be one of "hybrid", "inline", "pool", not \'inlin\';'
            ' did you mean "inline"?',
        ),
        (
            ECHO + 'bind = "nowhere"\n',
            'klamm.toml:3:1  listeners.a.bind: must be HOST:PORT with a port up to 65535, or unix:/PATH, not "nowhere"',
        ),
        (
            ECHO + 'advertise = "x"\n',
            'klamm.toml:3:1  listeners.a.advertise: must be HOST:PORT with a port up to 65535, not "x"',
        ),
        (
            ECHO + 'advertise = "0.0.0.0:9092"\n',
            "klamm.toml:3:1  listeners.a.advertise: must name a host that clients can connect to",
        ),
        (
            ECHO + 'transport = "plaintex"\n',
            'klamm.toml:3:1  listeners.a.transport: unknown transport "plaintex"; did you mean "plaintext"?'
            " (known: plaintext)",
        ),
        (
            '[listeners.a]\napi_set = "eco"\n',
            'klamm.toml:2:1  listeners.a.api_set: unknown api set "eco"; did you mean "echo"? (known: echo, topics)',
        ),
        (
            '[listeners.a]\napi_set = "x"\n[x]\nprovider = "topic"\n',
            'klamm.toml:4:1  x.provider: unknown api set "topic"; did you mean "topics"? (known: echo, topics)',
        ),
        (
            '[listeners.a]\napi_set = "x"\n[x]\nprovider = 3\n',
            "klamm.toml:4:1  x.provider: must be a string",
        ),
        (
            ECHO + "[servr]\nio_threads = 3\n",
            "klamm.toml:3:1  servr: unknown table; no listener uses a part or api set of that name;"
            ' did you mean "server"?',
        ),
        (
            # The name that the listener misspells is not suggested.
            '[listeners.a]\napi_set = "ecko"\n[echo]\nloud = 1\n',
            "klamm.toml:3:1  echo: unknown table; no listener uses a part or api set of that name",
        ),
        (
            ECHO + "[server]\nio_thread = 3\n",
            'klamm.toml:4:1  server.io_thread: unknown key; did you mean "io_threads"?',
        ),
        (
            ECHO + "[server.lanes]\nlanes = 4\n",
            "klamm.toml:3:1  server.lanes: unknown key",
        ),
        (ECHO + "[echo]\nloud = 1\n", 'klamm.toml:4:1  echo.loud: the api set "echo" has no settings'),
        (
            ECHO + "gates = ['connection_quota']\n[listeners.a.connection_qouta]\nmax_connections_per_ip = 1\n",
            "klamm.toml:4:1  listeners.a.connection_qouta: no part of this listener has that name;"
            ' did you mean "connection_quota"?',
        ),
        (ECHO + "gates = ['needy']\n", "klamm.toml:1:1  listeners.a.needy.secret: is required"),
        (
            ECHO + "gates = ['connection_quota']\n[listeners.a.connection_quota]\noverrides = { '10.0.0.0/33' = 1 }\n",
            'klamm.toml:5:1  listeners.a.connection_quota.overrides: "10.0.0.0/33" is not an address or CIDR network',
        ),
        (
            ECHO + "gates = ['lost']\n",
            'klamm.toml:1:1  listeners.a.lost: the connection gate "lost" of made-up: its settings cannot be loaded:'
            f" {NOWHERE!r}",
        ),
        (TOPICS + "num.partitions = 11\n", "klamm.toml:4:1  topics.num.partitions: must be at most 10, not 11"),
        (
            TOPICS + "num.partition = 1\n",
            'klamm.toml:4:1  topics.num.partition: unknown key; did you mean "num.partitions"?',
        ),
        (TOPICS + "broker.rack = ''\n", "klamm.toml:4:1  topics.broker.rack: must not be blank"),
        (
            EAST + "num.partitions = 11\n",
            "klamm.toml:4:1  topics.east.num.partitions: must be at most 10, not 11",
        ),
        (
            EAST + "num.partition = 1\n",
            'klamm.toml:4:1  topics.east.num.partition: unknown key; did you mean "num.partitions"?',
        ),
        (
            '[listeners.a]\napi_set = "topics.est"\n[topics.east]\nnum.partitions = 1\n',
            'klamm.toml:2:1  listeners.a.api_set: there is no table [topics.est]; did you mean "topics.east"?',
        ),
        (
            EAST + "num.partitions = 1\n[topics.eat]\nnum.partitions = 1\n",
            'klamm.toml:5:1  topics.eat: no listener has api_set = "topics.eat"; did you mean "topics.east"?',
        ),
        (
            EAST + "num.partitions = 1\n[topics]\nnum.partitions = 1\n",
            'klamm.toml:6:1  topics.num: no listener has api_set = "topics.num"; did you mean "topics.east"?',
        ),
        (
            EAST + "num.partitions = 1\n[topics]\nretention = 1\n",
            "klamm.toml:6:1  topics.retention: unknown key; the listeners use [topics.east]",
        ),
        (
            '[listeners.a]\napi_set = "topic.east"\n[topic.east]\nnum.partitions = 1\n',
            'klamm.toml:2:1  listeners.a.api_set: unknown api set "topic"; did you mean "topics"?'
            " (known: echo, topics)",
        ),
        ("[listeners.a]\napi_set = [1]\n", "klamm.toml:2:1  listeners.a.api_set: must be a string, not a list"),
        (
            "[listeners]\nbind = 'x:1'\n",
            'klamm.toml:2:1  listeners.bind: must be a table: write [listeners.NAME] and below it bind = "HOST:PORT"',
        ),
        ("server = 5\n" + ECHO, "klamm.toml:1:1  server: must be a table"),
        ("[server]\n", "klamm.toml  listeners: no listener is configured; a file needs at least [listeners.NAME]"),
    ],
)
def test_a_single_problem_is_reported(problems, text, problem):
    assert problem in problems(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "num.partitions = 3\n" + TOPICS,
            'klamm.toml:1:1  num: unknown key at the top of the file; "num.partitions" belongs below [topics]',
        ),
        (
            '"control.plane.listener.name" = "x"\n' + ECHO,
            "klamm.toml:1:1  control.plane.listener.name: unknown key at the top of the file;"
            ' "control.plane.listener.name" is the key control_listeners of [server.priority]',
        ),
        (
            '"log.dirs" = "data"\n' + ECHO,
            'klamm.toml:1:1  log.dirs: unknown key at the top of the file; "log.dirs" is the key data_dir of [server]',
        ),
        (
            'advertised.listeners = "PLAINTEXT://a:1"\n' + ECHO,
            "klamm.toml:1:1  advertised: unknown key at the top of the file;"
            ' "advertised.listeners" is the key advertise of [listeners.NAME]',
        ),
        ("foo = 3\n" + ECHO, "klamm.toml:1:1  foo: unknown key at the top of the file"),
        (
            TOPICS + 'log.dirs = "data"\n',
            'klamm.toml:4:1  topics.log.dirs: unknown key; "log.dirs" is the key data_dir of [server]',
        ),
        (
            "[server]\nnum.partitions = 3\n" + TOPICS,
            'klamm.toml:2:1  server.num: unknown key; "num.partitions" belongs below [topics]',
        ),
        (
            ECHO + "[listeners.a.needy]\nsecret = 'x'\n",
            "klamm.toml:3:1  listeners.a.needy: belongs to a connection gate that this listener does not name;"
            ' add gates = ["needy"]',
        ),
        (
            '[listeners.a]\nbind = 127.0.0.1:9092\napi_set = "echo"\n',
            "klamm.toml:2:13  Expected newline or end of document after a statement;"
            ' a string needs quotes: bind = "127.0.0.1:9092"',
        ),
        (
            "[listeners.a]\napi_set = echo  # mine\n",
            'klamm.toml:2:11  Invalid value; a string needs quotes: api_set = "echo"',
        ),
    ],
)
def test_a_misplaced_key_is_reported_with_its_right_place(problems, text, problem):
    (found,) = problems(text)
    assert found == problem


@pytest.mark.parametrize(
    ("gate", "problem"),
    [
        ("no_dataclass", "NoDataclass'> is not a settings class: a frozen dataclass was expected"),
        ("plain_field", "PlainField.limit must be made with klamm.setting(…)"),
        ("wrong_default", "WrongDefault.limit: 'three' is not a valid default for the type int"),
        ("unknown_type", "UnknownType.limits: [] is not a valid default for the type list[int]"),
    ],
)
def test_an_invalid_class_of_settings_is_reported(problems, gate, problem):
    (found,) = problems(ECHO + f'gates = ["{gate}"]\n')
    assert f'the connection gate "{gate}" of made-up: its settings cannot be loaded: TypeError' in found
    assert problem in found


def test_a_deprecated_key_works_with_a_warning(load, tmp_path):
    plan = load(ECHO + 'gates = ["renamed"]\n[listeners.a.renamed]\nlimits = 5\n', files=True)
    assert plan.listeners[0].gates[0].settings.limits == 5
    place = f"{tmp_path}/klamm.toml:5:1"
    assert [str(one) for one in plan.warnings] == [f"{place}  listeners.a.renamed.limits: is deprecated: use limit"]
    assert load(ECHO + 'gates = ["renamed"]\n', files=True).warnings == ()


def test_kafkas_key_listeners_is_reported_instead_of_the_table(problems):
    found = problems('listeners = "PLAINTEXT://:9092"\n')
    assert 'klamm.toml:1:1  listeners: must be a table: write [listeners.NAME] and below it bind = "HOST:PORT"' in found


def test_all_problems_are_reported_at_once(problems):
    assert problems(
        """\
[server]
io_threads = "many"
[listeners.a]
processors = 0
gates = ["connection_quota"]
api_set = "topics"
[listeners.a.connection_quota]
max_connections_per_ip = -1
[listeners.b]
transport = "ssl"
api_set = "topics"
[topics]
ratio = 2
codec = "zip"
"""
    ) == [
        "klamm.toml:2:1  server.io_threads: must be an integer, not 'many'",
        "klamm.toml:4:1  listeners.a.processors: must be at least 1, not 0",
        "klamm.toml:8:1  listeners.a.connection_quota.max_connections_per_ip: must be at least 0, not -1",
        'klamm.toml:10:1  listeners.b.transport: unknown transport "ssl" (known: plaintext)',
        "klamm.toml:13:1  topics.ratio: must be at most 1, not 2.0",
        'klamm.toml:14:1  topics.codec: must be one of "none", "gzip", not \'zip\'; did you mean "gzip"?',
    ]


@pytest.mark.parametrize(
    ("one", "other", "clash"),
    [
        ("127.0.0.1:9092", "127.0.0.1:9092", True),
        ("127.0.0.1:9092", "0.0.0.0:9092", True),
        ("[::]:9092", "127.0.0.1:9092", True),
        (":9092", "127.0.0.1:9092", True),
        ("127.0.0.1:9092", "127.0.0.2:9092", False),
        ("127.0.0.1:9092", "127.0.0.1:9093", False),
    ],
)
def test_two_listeners_on_one_port_are_refused(load, problems, one, other, clash):
    text = f'[listeners.a]\nbind = "{one}"\napi_set = "echo"\n[listeners.b]\nbind = "{other}"\napi_set = "echo"\n'
    if clash:
        assert problems(text) == ["klamm.toml:5:1  listeners.b.bind: port 9092 is taken by listener a"]
    else:
        assert len(load(text).listeners) == 2


def test_invalid_toml_is_reported_with_line_and_column(problems):
    (problem,) = problems('[server]\nio_threads = 3\n[listeners.a\nbind = "x"\n')
    assert problem.startswith("klamm.toml:3:13  ")


def test_unreadable_files_are_reported(plugins, problems, tmp_path):
    with pytest.raises(ConfigError, match=r"missing.toml  cannot be read: No such file"):
        load_plan(tmp_path / "missing.toml", plugins)
    (tmp_path / "latin.toml").write_bytes(b"# \xe4\n")
    with pytest.raises(ConfigError, match=r"latin.toml  is not UTF-8: .* at byte 2"):
        load_plan(tmp_path / "latin.toml", plugins)


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("processors", "--set processors  must be KEY=VALUE"),
        ("=1", "--set =1  must be KEY=VALUE"),
        ("num.partition=3", '--set num.partition=3  num.partition: unknown key; did you mean "num.partitions"?'),
        ("num.partitions=many", "--set num.partitions=many  topics.num.partitions: must be an integer, not 'many'"),
        (
            "listeners.a.bind=9092",
            "--set listeners.a.bind=9092  listeners.a.bind:"
            ' must be HOST:PORT with a port up to 65535, or unix:/PATH, not "9092"',
        ),
        (
            "listeners.a.processor=2",
            '--set listeners.a.processor=2  listeners.a.processor: unknown key; did you mean "processors"?',
        ),
        (
            "listeners.b.processors=2",
            "--set listeners.b.processors=2  listeners.b: there is no such listener, and a new one needs a bind",
        ),
        (
            "max.connections=3",
            "--set max.connections=3  max.connections: belongs to connection_quota, which no listener uses",
        ),
        ("inter.broker.listener.name=a", "--set inter.broker.listener.name=a  inter.broker.listener.name: unknown key"),
    ],
)
def test_problems_of_the_command_line_are_reported_as_such(problems, override, problem):
    assert problems(TOPICS, override) == [problem]


def test_bounds_are_reported_in_full(problems):
    assert problems(TOPICS + "log.segment.bytes = 3\n") == [
        "klamm.toml:4:1  topics.log.segment.bytes: must be at least 1048576, not 3"
    ]


def test_text_instead_of_a_number_is_reported_even_if_the_command_line_sets_the_key(problems):
    assert problems(TOPICS + "ratio = '0.5'\n", "num.partitions=2") == [
        "klamm.toml:4:1  topics.ratio: must be a number, not '0.5'"
    ]


@pytest.mark.parametrize(
    ("path", "position"),
    [
        (("listeners", "a.b", "bind"), (3, 3)),
        (("topics", "num.partitions"), (6, 1)),
        (("topics", "log.retention.ms"), (7, 1)),
        (("topics", "absent"), (5, 1)),
        (("topics", "inline", "key"), (8, 1)),
        (("listeners",), (2, 1)),
        (("other",), None),
    ],
)
def test_positions_of_keys_are_found(path, position):
    text = """\
# [topics]
[ listeners . "a.b" ]
  bind = "x"

[topics]
num . 'partitions' = 3
"log.retention.ms" = 5
inline = { key = 1 }
"""
    assert position_of(text, path) == position


TWO_GATED = """
[listeners.outer]
bind = "127.0.0.1:0"
api_set = "echo"
gates = ["connection_quota", "creation_rate"]
[listeners.inner]
bind = "127.0.0.1:0"
api_set = "echo"
gates = ["connection_quota", "creation_rate"]
"""
OTHER = "applies to all listeners together, but listener outer has another value: write it once, in"


def test_limits_of_the_server_must_be_the_same_on_all_listeners(problems, load):
    assert problems(
        TWO_GATED
        + """
        [listeners.outer.connection_quota]
        broker_max_connections = 5
        [listeners.inner.connection_quota]
        broker_max_connections = 6
        max_connections = 7
        [listeners.outer.creation_rate]
        broker_max_connection_creation_rate = 5
        """
    ) == [
        f"klamm.toml:14:9  listeners.inner.connection_quota.broker_max_connections: {OTHER} [connection_quota]",
        f"klamm.toml:6:1  listeners.inner.creation_rate.broker_max_connection_creation_rate: {OTHER} [creation_rate]",
    ]
    common = "[connection_quota]\nbroker_max_connections = 5\n[listeners.inner.connection_quota]\nprotected = true\n"
    _outer, inner = load(TWO_GATED + common).listeners
    assert inner.gates[0].settings.broker_max_connections == 5


def test_listeners_that_a_scheduler_names_must_exist(problems):
    text = '[server]\nrequest_scheduler = "priority"\n[server.priority]\ncontrol_listeners = ["outer", "iner"]\n'
    assert problems(text + TWO_GATED) == [
        'klamm.toml:4:1  server.priority.control_listeners: there is no listener "iner"; did you mean "inner"?'
    ]


def test_a_handler_set_that_uses_the_nodes_of_another_requires_it(problems, load, plugins):
    plugins.add(klamm_broker, "klamm_broker")
    control = '[listeners.orders]\nbind = "127.0.0.1:9192"\napi_set = "control"\n'
    assert problems(control) == [
        'klamm.toml:3:1  listeners.orders.api_set: needs a listener with the api set "broker" beside it'
    ]
    both = control + '[listeners.clients]\napi_set = "many"\n[many]\nprovider = "broker"\nnodes = 2\n'
    assert [plan.name for plan in load(both).listeners] == ["orders", "orders-2", "clients", "clients-2"]


@pytest.mark.parametrize(
    ("bind", "ports", "problem"),
    [
        ("127.0.0.1:9092", "[9500]", "must have 2 ports, for the nodes after the first, not 1"),
        ("127.0.0.1:9092", "[9500, 70000]", "70000 is not a port"),
        ("127.0.0.1:9092", "[9500, 9092]", None),
        ("unix:/tmp/klamm.sock", "[9500, 9600]", "does not work on a Unix domain socket: it has no ports"),
    ],
)
def test_ports_of_nodes_are_checked_for_clashes(problems, plugins, bind, ports, problem):
    plugins.add(klamm_broker, "klamm_broker")
    text = f"[broker]\nnodes = 3\n[listeners.one]\nbind = '{bind}'\nnode_ports = {ports}\n"
    if problem is None:
        assert problems(text) == ["klamm.toml:4:1  listeners.one.bind: port 9092 is taken by listener one"]
    else:
        assert problems(text) == [f"klamm.toml:5:1  listeners.one.node_ports: {problem}"]


def test_client_quotas_must_be_the_same_on_all_listeners(problems, plugins):
    plugins.add(klamm_throttling, "klamm_throttling")
    text = TWO_GATED.replace("gates =", 'throttles = ["client_quota"]\ngates =')
    assert problems(text + "[listeners.inner.client_quota.clients.a]\nproducer_byte_rate = 3\n") == [
        f"klamm.toml:12:1  listeners.inner.client_quota.clients: {OTHER} [client_quota]"
    ]


FILES = '[listeners.a]\napi_set = "echo"\ngates = ["keeper"]\n[listeners.a.keeper]\n'


def test_files_that_settings_name_are_checked_on_request(load, problems):
    text = FILES + 'list = "absent"\nrest.interval.ms = 3\n'
    assert load(text).listeners[0].gates[0].settings.rest_interval_ms == 3
    assert problems(text, files=True) == [
        "klamm.toml:5:1  listeners.a.keeper.list: absent: No such file or directory",
        "klamm.toml:6:1  listeners.a.keeper.rest.interval.ms: is odd",
        "klamm.toml:4:1  listeners.a.keeper: has a lock and no key",
    ]
    assert problems(text.replace("listeners.a.keeper", "keeper"), files=True)[0] == (
        "klamm.toml:5:1  keeper.list: absent: No such file or directory"
    )


def test_settings_whose_check_of_files_raises_are_reported(problems):
    (found,) = problems(FILES + 'list = ""\n', files=True)
    cause = r"ZeroDivisionError\('division by zero'\) at .*conftest\.py:\d+"
    assert re.fullmatch(rf"klamm\.toml:4:1  listeners\.a\.keeper: cannot be checked: {cause}", found)
