"""Compares how servers describe themselves: ApiVersions, features, and configs of broker, topic, group and metrics."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import partial
from typing import Final, TypeAlias

from klamm.testing import RawClient
from klamm.wire.api_keys import find_spec
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from klamm.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm_broker.configs.config_registry import ConfigSource, ResourceType
from klamm_broker.configs.topic_config import ConfigType
from tests.waiting import wait_until

Facts: TypeAlias = Mapping[str, Mapping[str, str]]
"""A server's values, by name, e.g. `topic:retention.ms`, and by aspect, e.g. `default`."""

Differences: TypeAlias = Mapping[str, tuple[str, str]]
"""The values of Kafka and klamm, by name and aspect."""

NOTHING: Final = "–"
_RESOURCES: Final = {
    "broker": (ResourceType.BROKER, "1"),
    "topic": (ResourceType.TOPIC, "described"),
    "group": (ResourceType.GROUP, "described"),
    "client-metrics": (ResourceType.CLIENT_METRICS, "described"),
}
_ROW: Final = re.compile(r"^\| `(\S+)`, ([a-z-]+) \| (.+?) \| (.+?) \| .+ \|$", re.MULTILINE)
_CODE: Final = re.compile(r"`([^`\n]+)`")


def facts(client: RawClient) -> Facts:
    """Return the values that a server describes.

    The function creates a topic, and a subscription for client metrics.
    """
    return dict(_facts(client))


def differences(theirs: Facts, ours: Facts) -> Differences:
    """Return the values that differ. The aspect `there` shows the names that one server lacks."""
    found: dict[str, tuple[str, str]] = {}
    for name in sorted(theirs.keys() | ours.keys()):
        if name not in theirs or name not in ours:
            found[f"{name}, there"] = ("yes", "no") if name in theirs else ("no", "yes")
            continue
        for aspect, value in theirs[name].items():
            if value != ours[name][aspect]:
                found[f"{name}, {aspect}"] = value, ours[name][aspect]
    return found


def explained(page: str) -> Differences:
    """Return differences that docs/deviations.md lists in rows "| `topic:a.b`, default | Kafka's | klamm's | why |"."""
    return {f"{row[0]}, {row[1]}": (row[2].strip("`"), row[3].strip("`")) for row in _ROW.findall(page)}


def is_listed(difference: str, section: str) -> bool:
    """Return True if a section of docs/deviations.md lists the config as code. A `*` stands for any text."""
    name = difference.partition(":")[2].removesuffix(", there")
    return difference.endswith(", there") and any(fnmatchcase(name, each) for each in _CODE.findall(section))


def _facts(client: RawClient) -> Iterator[tuple[str, Mapping[str, str]]]:
    answer = client.call(ApiVersionsRequest("klamm", "1"), 5)
    for each in answer.api_keys:
        spec = find_spec(each.api_key)
        yield f"api:{spec.name if spec else each.api_key}", {"versions": f"{each.min_version}–{each.max_version}"}
    levels = {each.name: each.max_version_level for each in answer.finalized_features}
    for each in answer.supported_features:
        level = str(levels.get(each.name, NOTHING))
        yield f"feature:{each.name}", {"levels": f"{each.min_version}–{each.max_version}", "finalized": level}
    client.call(CreateTopicsRequest([CreatableTopic(_RESOURCES["topic"][1], 1, 1)]), 7)
    subscription = AlterConfigsResource(*_RESOURCES["client-metrics"], [AlterableConfig("metrics", 0, "*")])
    client.call(IncrementalAlterConfigsRequest([subscription]), 1)
    for kind in _RESOURCES:
        wait_until(partial(_described, client, kind), within_s=60)
        for each in _described(client, kind):
            yield f"{kind}:{each.name}", _aspects(each)


def _described(client: RawClient, kind: str) -> list[DescribeConfigsResourceResult]:
    """Return the configs, or none if the server does not know the resource yet."""
    wanted = DescribeConfigsResource(*_RESOURCES[kind])
    result: DescribeConfigsResult
    (result,) = client.call(DescribeConfigsRequest([wanted], include_synonyms=True), 4).results
    return result.configs


def _aspects(config: DescribeConfigsResourceResult) -> Mapping[str, str]:
    """Return the aspects of a config that do not depend on the server's own settings."""
    defaults = [each for each in config.synonyms if each.source == ConfigSource.DEFAULT_CONFIG]
    default = config.value if config.config_source == ConfigSource.DEFAULT_CONFIG else None
    if defaults:
        default = defaults[0].value
    return {
        "type": ConfigType(config.config_type).name,
        "default": NOTHING if default is None else default or '""',
        "synonyms": ", ".join(f"{each.name}={each.value}" for each in defaults) or NOTHING,
        "read-only": "yes" if config.read_only else "no",
        "sensitive": "yes" if config.is_sensitive else "no",
    }
