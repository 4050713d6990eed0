"""Tests that a reload applies the keys of `[broker]` that clients can also change, and the levels of loggers."""

import logging

import pytest

from klamm import ErrorCode, KafkaError
from klamm.cli.main import main
from klamm.config.planner import load_plan
from klamm.config.plugin_registry import PluginRegistry
from klamm.server.serving import reload
from klamm.testing import EmbeddedServer
from klamm.testing.embedded import TEST_DEFAULTS
from klamm.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

LOGGER = "klamm.authorizer"
SET, DELETE = 0, 1

LISTENER = '[listeners.default]\nbind = "127.0.0.1:0"\n'


class Live:
    """A server with a configuration file that a test changes."""

    def __init__(self, file, text):
        self.file = file
        file.write_text(text + LISTENER)
        self.embedded = EmbeddedServer(file=file).start()

    def change(self, text):
        """Replace the file and reload. Return the report without its last line, which is always the same."""
        self.file.write_text(text + LISTENER)
        plan = load_plan(self.file, PluginRegistry(), defaults=TEST_DEFAULTS)
        *lines, last = [line.removeprefix("reload: ") for line in reload(self.embedded.server, lambda: plan)]
        assert last == "done"
        return lines

    def configs(self, *names):
        """Return the values of the broker's configs, as clients see them."""
        registry = self.embedded.api_set().configs
        found = {one.name: one.value for one in registry.describe_broker(1, "1", names)}
        return tuple(found[name] for name in names)

    def accepts(self, size):
        try:
            self.embedded.produce("t", b"x" * size)
        except KafkaError as error:
            if error.error_code is not ErrorCode.MESSAGE_TOO_LARGE:
                raise
            return False
        return True


@pytest.fixture
def live(tmp_path):
    """Yield `start(text)`, which starts a server with this configuration. The root logger's level is restored."""
    logger = logging.getLogger()
    level = logger.level
    started = []

    def start(text):
        started.append(Live(tmp_path / "klamm.toml", text))
        started[-1].embedded.create_topic("t")
        return started[-1]

    yield start
    for one in started:
        one.embedded.stop()
    logger.setLevel(level)


def broker(**values):
    return "[broker]\n" + "".join(f"{name.replace('_', '.')} = {value}\n" for name, value in values.items())


def test_a_reload_applies_only_keys_that_clients_can_change(live):
    one = live(broker(message_max_bytes=2_000, num_partitions=3))
    assert not one.accepts(5_000)
    assert one.change(broker(message_max_bytes=20_000, num_partitions=7)) == [
        "[broker] message.max.bytes has changed and is applied",
        "[broker] num.partitions has changed; this takes effect at the next start: this part reads it once",
    ]
    assert one.accepts(5_000)
    assert one.configs("message.max.bytes", "num.partitions") == ("20000", "3")
    assert one.change(broker(num_partitions=3)) == ["[broker] message.max.bytes has changed and is applied"]
    assert one.configs("message.max.bytes") == ("1048588",)


def test_a_value_that_a_client_has_set_takes_precedence_over_the_file(live):
    one = live(broker(message_max_bytes=2_000))
    registry = one.embedded.api_set().configs
    with registry.changing:
        registry.set_dynamic("", {"message.max.bytes": "4000"})
    one.change(broker(message_max_bytes=20_000))
    assert not one.accepts(5_000)
    with registry.changing:
        registry.set_dynamic("", {})
    assert one.accepts(5_000)


def test_a_reload_changes_nothing_if_values_contradict_each_other(live):
    one = live(broker(message_max_bytes=2_000))
    lines = one.change(
        broker(
            message_max_bytes=20_000,
            log_cleaner_min_compaction_lag_ms=2_000,
            log_cleaner_max_compaction_lag_ms=1_000,
        )
    )
    assert lines[0].startswith("[broker] stays as it was: INVALID_CONFIG: min.compaction.lag.ms (2000) is greater")
    assert one.configs("message.max.bytes", "log.cleaner.min.compaction.lag.ms") == ("2000", "0")
    assert not one.accepts(5_000)
    assert one.change(broker(message_max_bytes=20_000)) == ["[broker] message.max.bytes has changed and is applied"]


def test_a_reload_changes_nothing_if_values_contradict_those_of_a_topic(live):
    one = live(broker(message_max_bytes=2_000))
    one.embedded.create_topic("lagging", configs={"min.compaction.lag.ms": "5000"})
    (line, *_) = one.change(broker(message_max_bytes=20_000, log_cleaner_max_compaction_lag_ms=1_000))
    assert line.startswith("[broker] stays as it was: INVALID_CONFIG: topic lagging: ")
    assert not one.accepts(5_000)


def test_a_diff_shows_for_each_key_if_a_reload_applies_it(tmp_path, capsys):
    old, new = tmp_path / "old.toml", tmp_path / "new.toml"
    old.write_text(broker(message_max_bytes=2_000, num_partitions=3) + LISTENER)
    new.write_text(broker(message_max_bytes=20_000, num_partitions=7) + LISTENER)
    assert main(["diff", str(old), str(new)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "[broker] message.max.bytes: takes effect now, if the part accepts the values",
        "[broker] num.partitions: takes effect at the next start: this part reads it once",
    ]


@pytest.mark.parametrize(
    "text",
    [
        broker(message_max_bytes=20_000, num_partitions=7),
        '[server]\nlog_level = "ERROR"\nio_threads = 3\nqueued_max_requests = 9\nlog_format = "json"\n',
        '[server]\nextensions = ["prometheus"]\n[prometheus]\nbind = "127.0.0.1:0"\n',
        '[listeners.more]\nbind = "127.0.0.1:0"\nprocessors = 2\n',
        '[listeners.more]\nbind = "127.0.0.1:0"\napi_set = "echo"\n',
        "[connection_quota]\nmax_connections_per_ip = 7\nipv6_prefix_length = 56\n",
        "[client_quota]\nclients = { batch = { producer_byte_rate = 5 } }\n",
    ],
)
def test_a_reload_says_the_same_as_a_diff_and_why(live, tmp_path, capsys, text):
    one = live("")
    old = tmp_path / "old.toml"
    old.write_text(one.file.read_text())
    said = one.change(text)
    main(["diff", str(old), str(one.file)])
    waits, now = [], []
    for line in capsys.readouterr().out.splitlines():
        what, _, when = line.partition(": takes effect ")
        if when.startswith("at the next start: "):
            waits.append(f"{what} has changed; this takes effect {when}")
        else:
            now.append(what)
    assert [line for line in said if "next start" in line] == waits
    applied = " ".join(line for line in said if "next start" not in line)
    tables_and_keys = " ".join(now).replace(",", "").split()
    assert waits or now
    assert [each for each in tables_and_keys if each not in applied] == []


def test_a_reload_sets_and_removes_levels_of_single_loggers(live):
    one = live('[server]\nlog_levels = { "klamm.tests.a" = "DEBUG", "klamm.tests.b" = "ERROR" }\n')
    assert one.change('[server]\nlog_levels = { "klamm.tests.b" = "INFO" }\n') == [
        "[server] log_levels has changed and is applied"
    ]
    levels = [logging.getLogger(f"klamm.tests.{name}").level for name in "ab"]
    assert levels == [logging.NOTSET, logging.INFO]
    one.change("")
    assert logging.getLogger("klamm.tests.b").level == logging.NOTSET


@pytest.mark.parametrize("name", ["root", ""])
def test_the_root_logger_has_one_key(tmp_path, name, capsys):
    file = tmp_path / "klamm.toml"
    file.write_text(f'[server]\nlog_levels = {{ "{name}" = "INFO" }}\n{LISTENER}')
    assert main(["check", str(file)]) == 2
    assert (
        f'klamm.toml:2:1  server.log_levels: "{name}" is the root logger, whose level is log_level'
        in capsys.readouterr().err
    )


def log_levels(**levels):
    return "[server.log_levels]\n" + "".join(f'"klamm.{name}" = "{level}"\n' for name, level in levels.items())


@pytest.fixture
def level():
    """Yield a function that returns the level of a logger, which the configuration and clients set."""
    logger = logging.getLogger(LOGGER)
    before = logger.level
    yield lambda: logging.getLevelName(logger.level)
    logger.setLevel(before)


def alter(one, operation, value=None):
    with one.embedded._connect() as client:
        resource = AlterConfigsResource(8, "1", [AlterableConfig(LOGGER, operation, value)])
        (result,) = client.call(IncrementalAlterConfigsRequest([resource]), 1).responses
        assert result.error_code == 0, result.error_message


def test_a_level_that_a_client_has_set_stays_until_the_file_has_another_level(live, level):
    one = live("")
    one.change(log_levels(authorizer="DEBUG"))
    alter(one, SET, "ERROR")
    one.change(log_levels(authorizer="DEBUG", other="INFO"))
    assert level() == "ERROR"
    alter(one, DELETE)
    assert level() == "DEBUG"
    alter(one, SET, "ERROR")
    one.change(log_levels(authorizer="INFO"))
    assert level() == "INFO"
    one.change("")
    alter(one, DELETE)
    assert level() == "NOTSET"
