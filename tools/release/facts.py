"""Facts from the jars of a release: APIs, messages, errors, features, configs, metrics, and required authorizations."""

from __future__ import annotations

import re
import subprocess
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.peers.kafka_jars import classpath, folder
from tools.messages.descriptions import load, walk

_PROGRAM: Final = Path(__file__).resolve().parent.parent / "ReadRelease.java"
_WITH_METRICS: Final = re.compile(r"^kafka(?!-clients|-streams|-tools|-shell)[-_].*\.jar$")
_METRIC: Final = re.compile(
    r"[A-Z][A-Za-z]+(PerSec|TimeMs|Percent|Count|Ratio|Rate|Size)|[a-z]+(-[a-z]+)+-(rate|total|count|ratio)"
)
_METHOD: Final = re.compile(r"^  \S.*[ $](?:\$anonfun\$)?handle(\w+?)(?:Request)?(?:\$\d+)*\(")
_RIGHT: Final = re.compile(r"org/apache/kafka/common/(?:acl/AclOperation|resource/ResourceType)\.([A-Z_]+):")


@dataclass
class Facts:
    """The facts of a release, each by name.

    `apis` has key, oldest and latest version, and `features` has lowest, highest and default level. `configs` has type,
    default and validator, by kind and name: `topic:retention.ms`. `messages` has the latest version and the fields of
    each request and response. `rights` has the operations and types of resources that the code of an API names.
    """

    apis: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    messages: dict[str, tuple[int, frozenset[str]]] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    features: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    configs: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    metrics: Sequence[str] = ()
    rights: Mapping[str, Sequence[str]] = field(default_factory=dict)


def read(version: str) -> Facts:
    """Return the facts of a release, from its jars. The first call fetches the jars."""
    facts = Facts()
    command = ["java", "-cp", classpath(version), str(_PROGRAM)]
    for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
        kind, name, *rest = line.split("\t")
        if kind == "api":
            facts.apis[name] = (int(rest[0]), int(rest[1]), int(rest[2]))
        elif kind == "error":
            facts.errors[name] = int(rest[0])
        elif kind == "feature":
            facts.features[name] = (int(rest[0]), int(rest[1]), int(rest[2]))
        else:
            facts.configs[name] = (rest[0], rest[1], rest[2])
    facts.messages = {
        name: latest_and_fields(raw) for name, raw in load(version).items() if raw["type"] in ("request", "response")
    }
    facts.metrics = sorted({*_texts_beside_metrics(folder(version))})
    facts.rights = _rights(version)
    return facts


def latest_and_fields(raw: Mapping[str, object]) -> tuple[int, frozenset[str]]:
    """Return the latest version of a message, and its fields with their types."""
    versions = str(raw["validVersions"])
    latest = -1 if versions == "none" else int(versions.rpartition("-")[2])
    if "fields" not in raw:
        return latest, frozenset()
    return latest, frozenset(f"{path} {each['type']}" for path, each in walk(dict(raw)))


def _rights(version: str) -> dict[str, list[str]]:
    command = ["javap", "-p", "-c", "-cp", classpath(version), "kafka.server.KafkaApis"]
    found: defaultdict[str, set[str]] = defaultdict(set)
    api = ""
    for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
        if line.startswith("  ") and line[2:3].isalpha():
            method = _METHOD.match(line)
            api = method[1] if method else ""
        elif api and (right := _RIGHT.search(line)):
            found[api].add(right[1])
    return {api: sorted(rights) for api, rights in sorted(found.items())}


def _texts_beside_metrics(jars: Path) -> Iterator[str]:
    """Yield the texts that look like the name of a metric, from classes that use metrics."""
    for jar in sorted(jars.glob("kafka*.jar")):
        if not _WITH_METRICS.match(jar.name):
            continue
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if name.endswith(".class"):
                    texts = list(constants(archive.read(name)))
                    if any("etric" in text for text in texts):
                        yield from filter(_METRIC.fullmatch, texts)


_OF_SIZE: Final = {
    3: 4,
    4: 4,
    5: 8,
    6: 8,
    7: 2,
    8: 2,
    9: 4,
    10: 4,
    11: 4,
    12: 4,
    15: 3,
    16: 2,
    17: 4,
    18: 4,
    19: 2,
    20: 2,
}
"""The size in bytes of the entries in a class file's constant pool, by tag."""


def constants(data: bytes) -> Iterator[str]:
    """Return the strings and the names of classes in a class file's constant pool, without names of methods."""
    texts: dict[int, str] = {}
    wanted: list[int] = []
    position, index, count = 10, 1, int.from_bytes(data[8:10], "big")
    while index < count:
        tag = data[position]
        position += 1
        if tag == 1:
            size = int.from_bytes(data[position : position + 2], "big")
            texts[index] = data[position + 2 : position + 2 + size].decode(errors="replace")
            position += 2 + size
        else:
            if tag in (7, 8):
                wanted.append(int.from_bytes(data[position : position + 2], "big"))
            position += _OF_SIZE[tag]
        # A long and a double take two places.
        index += 2 if tag in (5, 6) else 1
    return (texts[each] for each in wanted)
