"""Tests of the table of topic configs: valid and invalid values, and a comparison with Kafka's own table."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from klamm import ErrorCode, KafkaError
from klamm.wire.compression import Codec
from klamm_broker.broker_settings import BrokerSettings
from klamm_broker.configs.topic_config import TOPIC_CONFIGS, ConfigType, parse
from klamm_broker.log.config import LogConfig
from tests.peers.kafka_jars import classpath


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("cleanup.policy", "compact , delete", ("compact", "delete")),
        ("cleanup.policy", "", ()),
        ("cleanup.policy", "delete,delete", ("delete",)),
        ("retention.ms", " -1 ", -1),
        ("retention.bytes", "9223372036854775807", 2**63 - 1),
        ("min.cleanable.dirty.ratio", "0.25", 0.25),
        ("preallocate", "TRUE", True),
        ("compression.type", "lz4", "lz4"),
        ("leader.replication.throttled.replicas", "0:1,1:2", ("0:1", "1:2")),
        ("leader.replication.throttled.replicas", "*", ("*",)),
    ],
)
def test_valid_values_are_parsed(name: str, text: str, value: Any) -> None:
    assert parse(name, text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("no.such.config", "1"),
        ("retention.ms", "-2"),
        ("retention.ms", "1.5"),
        ("retention.ms", "9223372036854775808"),
        ("retention.ms", ""),
        ("segment.bytes", "1048575"),
        ("segment.bytes", "2147483648"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("min.cleanable.dirty.ratio", "x"),
        ("preallocate", "yes"),
        ("compression.type", "brotli"),
        ("cleanup.policy", "keep"),
        ("compression.gzip.level", "0"),
        ("compression.gzip.level", "10"),
        ("follower.replication.throttled.replicas", "0:1,*"),
        ("follower.replication.throttled.replicas", "0-1"),
    ],
)
def test_invalid_values_are_refused(name: str, text: str) -> None:
    with pytest.raises(KafkaError) as error:
        parse(name, text)
    assert error.value.error_code is ErrorCode.INVALID_CONFIG
    assert name in (error.value.message or "")


@pytest.mark.parametrize(
    "values",
    [{"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}, {"remote.storage.enable": "true"}],
)
def test_contradictory_values_are_refused(values: dict[str, str]) -> None:
    with pytest.raises(KafkaError) as error:
        LogConfig(values)
    assert error.value.error_code is ErrorCode.INVALID_CONFIG


def test_a_logs_config_is_made_from_topic_configs() -> None:
    config = LogConfig({"cleanup.policy": "compact", "compression.type": "zstd", "max.compaction.lag.ms": "5"})

    assert (config.compact, config.delete) == (True, False)
    assert (config.codec, config.codec_level) == (Codec.ZSTD, 3)
    assert config.roll_ms == 5
    assert config.retention_ms == 7 * 86_400_000
    assert LogConfig().codec is None
    assert LogConfig({"compression.type": "uncompressed"}).codec is Codec.NONE
    assert LogConfig({"compression.type": "gzip"}).codec_level is None


def test_every_config_has_documentation() -> None:
    for config in TOPIC_CONFIGS.values():
        assert len(config.doc) > 20
        assert config.doc.endswith(".")


KAFKA_TABLE = """
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

public class TopicConfigs {
    public static void main(String[] args) throws Exception {
        var field = LogConfig.class.getDeclaredField("CONFIG");
        field.setAccessible(true);
        for (ConfigDef.ConfigKey key : ((ConfigDef) field.get(null)).configKeys().values()) {
            if (key.internalConfig) continue;
            var synonyms = ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.get(key.name);
            System.out.println(String.join("|", key.name, key.type.toString(),
                ConfigDef.convertToString(key.defaultValue, key.type),
                synonyms == null ? "" : synonyms.get(0).name()));
        }
    }
}
"""


@pytest.mark.interop
def test_the_table_equals_kafkas(tmp_path: Path) -> None:
    program = tmp_path / "TopicConfigs.java"
    program.write_text(KAFKA_TABLE)
    done = subprocess.run(
        ["java", "-cp", classpath(), str(program)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    kafkas = {line.split("|")[0]: tuple(line.split("|")[1:]) for line in done.stdout.splitlines()}

    ours = {name: (each.kind.name, text(each.default), each.broker_name or "") for name, each in TOPIC_CONFIGS.items()}

    assert ours == kafkas


def text(value: Any) -> str:
    """Return a default in Kafka's form."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, tuple) else str(value)


def test_defaults_are_in_bounds() -> None:
    for name, each in TOPIC_CONFIGS.items():
        assert parse(name, text(each.default)) == each.default
        assert isinstance(each.kind, ConfigType)


def test_broker_names_that_have_a_setting_agree_on_the_default() -> None:
    from klamm.config.setting import specs_of

    specs = specs_of(BrokerSettings)
    shared = {each.broker_name: each.default for each in TOPIC_CONFIGS.values() if each.broker_name in specs}

    assert len(shared) > 15
    for name, default in shared.items():
        assert specs[name].default in (default, None), name
