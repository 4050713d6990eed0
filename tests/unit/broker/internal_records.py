"""Reads the records of an internal topic. Only the last record of each key counts, as after a compaction."""

from __future__ import annotations

import importlib
import pkgutil
from struct import unpack_from
from typing import Any, Final, NamedTuple

from klamm.wire import coordinator_records
from klamm.wire.records import decode_records, iterate_batches
from klamm.wire.struct_base import WireStruct
from klamm_broker.log.files import FileRegion
from tests.unit.broker.broker_harness import BrokerHarness

_OF_OTHER_TOPICS: Final = ("transaction_log", "share_snapshot")


def _modules(names: list[str]) -> dict[int, Any]:
    found = (importlib.import_module(f"klamm.wire.coordinator_records.{name}") for name in names)
    return {module.RECORD_TYPE: module for module in found}


_OF_GROUPS: Final = _modules(
    [each.name for each in pkgutil.iter_modules(coordinator_records.__path__) if each.name not in _OF_OTHER_TOPICS]
)
MODULES: Final = {
    "__consumer_offsets": _OF_GROUPS,
    "__transaction_state": _modules(["transaction_log"]),
    "__share_group_state": _modules(["share_snapshot"]),
}


class Shown(NamedTuple):
    """A record: the name of its type, the fields of its key, the version of its value, and the value's fields."""

    kind: str
    key: tuple[Any, ...]
    version: int | None
    value: Any


def raw_records(harness: BrokerHarness, topic: str) -> list[tuple[int, bytes, bytes | None]]:
    """Return partition, key and value of all records of a topic. Make no directories."""
    found: list[tuple[int, bytes, bytes | None]] = []
    opened = harness.broker.topics.get(topic)
    assert opened is not None
    for partition in opened.partitions:
        if not (harness.data_dir / f"{topic}-{partition.index}").is_dir():
            continue
        offset = partition.log.log_start_offset
        while offset < partition.log.end_offset:
            got = partition.read(offset, 1_048_576, -1, min_one_message=True, committed_only=False).records
            data = got.read_bytes() if isinstance(got, FileRegion) else got
            for header, batch in iterate_batches(data):
                offset = header.last_offset + 1
                found += [(partition.index, each.key or b"", each.value) for each in decode_records(batch)]
    return found


def decoded(topic: str, key: bytes, value: bytes | None) -> Shown:
    """Decode a record of a topic, and check that encoding gives the same bytes."""
    (record_type,) = unpack_from(">h", key)
    module = MODULES[topic][record_type]
    kind = module.__name__.rpartition(".")[2]
    name = "".join(word.title() for word in kind.split("_"))
    key_class, value_class = getattr(module, f"{name}Key"), getattr(module, f"{name}Value")
    read_key = key_class.decode(0, key, 2)
    assert key[2:] == read_key.encode(0)
    fields = tuple(getattr(read_key, field) for field in read_key.__slots__)
    if value is None:
        return Shown(kind, fields, None, None)
    (version,) = unpack_from(">h", value)
    read_value = value_class.decode(version, value, 2)
    assert value[2:] == read_value.encode(version)
    return Shown(kind, fields, version, plain(read_value))


def plain(value: Any) -> Any:
    """Return a message as a dictionary of plain values."""
    if isinstance(value, WireStruct):
        return {name: plain(getattr(value, name)) for name in value.__slots__}
    return [plain(each) for each in value] if isinstance(value, list) else value


def shown(harness: BrokerHarness, topic: str = "__consumer_offsets") -> dict[tuple[str, tuple[Any, ...]], Shown]:
    """Return the records that a topic shows once it is up to date, by kind and key, without deleted ones."""
    harness.broker.internal_topics.catch_up()
    last = {key: value for _partition, key, value in raw_records(harness, topic)}
    records = [decoded(topic, key, value) for key, value in last.items() if value is not None]
    return {(each.kind, each.key): each for each in records}
