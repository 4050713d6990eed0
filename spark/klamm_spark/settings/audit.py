"""Settings of the observer `audit`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from klamm import setting
from klamm.config import check_networks, check_table
from klamm.wire.api_keys import ApiKey
from klamm_spark.events.pseudonyms import check_pseudonyms
from klamm_spark.storage.filesystems import check_spool

OFF: Final = "off"
METADATA: Final = "metadata"
DETAIL: Final = "detail"
LEVELS: Final = (OFF, METADATA, DETAIL)
REFUSE: Final = "refuse"
ALLOW: Final = "allow"
_DAY_MS: Final = 24 * 3600 * 1000


def _check_topic(name: str) -> str | None:
    return None if re.fullmatch(r"[A-Za-z0-9._-]{0,249}", name) else "is no name of a topic"


def api_key_of(name: str) -> int | None:
    """Return the key of an API by its name, e.g. `Produce`; None if there is no such API."""
    return ApiKey.__members__.get(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper())


def _check_levels_of_apis(levels: dict[str, str]) -> str | None:
    for name in levels:
        if api_key_of(name) is None:
            return f'there is no API "{name}"; names are those of Kafka, e.g. "OffsetCommit"'
    return _check_levels(levels)


def _check_principals(names: Iterable[str]) -> str | None:
    wrong = next((name for name in names if not all(name.partition(":"))), None)
    return None if wrong is None else f'"{wrong}" is not a principal such as User:{wrong.strip(":") or "alice"}'


def _check_levels_of_principals(levels: dict[str, str]) -> str | None:
    return _check_principals(levels) or _check_levels(levels)


def _check_levels(levels: dict[str, str]) -> str | None:
    wrong = next((level for level in levels.values() if level not in LEVELS), None)
    return None if wrong is None else f'"{wrong}" is not a level; levels are {", ".join(LEVELS)}'


def _check_node(node: str) -> str | None:
    if re.fullmatch(r"[A-Za-z0-9._-]{0,200}", node) and node not in (".", ".."):
        return None
    return "may have letters, digits, dots, dashes and underscores"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """`[audit]` for all listeners that name the observer, or `[listeners.NAME.audit]` for one listener."""

    spool: Path = setting(
        check=check_spool,
        doc="Directory of the spool; each node writes to its own folder below it.",
        private=True,
    )
    node: str = setting(
        "", check=_check_node, doc="Name of this server in events and in the spool; empty is the host's name."
    )
    level: str = setting(
        DETAIL,
        choices=LEVELS,
        doc="Detail in which requests are recorded: off records nothing, metadata everything except resources, "
        "detail everything. State changes and denied requests are always recorded in detail.",
    )
    apis: dict[str, str] = setting(
        {}, check=_check_levels_of_apis, doc='Levels of some APIs, e.g. `{ Fetch = "metadata", Heartbeat = "off" }`.'
    )
    principals: dict[str, str] = setting(
        {},
        check=_check_levels_of_principals,
        doc='Levels of some principals, which override those of APIs: `{ "User:probe" = "off" }`.',
    )
    exclude_principals: tuple[str, ...] = setting(
        (),
        check=_check_principals,
        doc="Principals that are not recorded, e.g. `User:probe`. No exclusion hides a state change or a denied "
        "request.",
    )
    exclude_client_ids: tuple[str, ...] = setting((), doc="Client ids that are not recorded.")
    exclude_networks: tuple[str, ...] = setting(
        (), check=check_networks, doc="Addresses and CIDR networks whose clients are not recorded."
    )
    aggregate_above_per_second: int = setting(
        10,
        minimum=-1,
        doc="Number of requests of one connection, API and result within a second that get their own event; the "
        "others share one event with a `repeat_count`. Denials and state changes are never aggregated, and "
        "with -1 nothing is.",
    )
    max_resources: int = setting(
        64,
        minimum=1,
        doc="Maximum number of resources in one event; `resource_count` has their total number. State changes and "
        "denied requests have all resources.",
    )
    flush_interval_ms: int = setting(50, minimum=1, doc="Time for which events are collected before they are written.")
    fsync_interval_ms: int = setting(
        1000, minimum=0, doc="The longest time between a write and its fsync; 0 syncs after every write."
    )
    segment_bytes: int = setting(
        64 * 1024**2, minimum=1024, maximum=512 * 1024**2, doc="Size at which a segment is sealed."
    )
    segment_age_ms: int = setting(60_000, minimum=10, doc="Age of its first event at which a segment is sealed.")
    compression: str = setting(
        "zstd", choices=("none", "zstd", "gzip"), doc="Compression of sealed segments. All readers accept all three."
    )
    retention_bytes: int = setting(
        10 * 1024**3,
        minimum=-1,
        doc="Size of the folder of requests and connections above which `on_limit` applies; -1 is no limit.",
    )
    retention_ms: int = setting(
        7 * _DAY_MS, minimum=-1, doc="Age at which sealed segments of requests and connections are deleted; -1 is none."
    )
    security_retention_bytes: int = setting(
        2 * 1024**3,
        minimum=-1,
        doc="The same for authentications and denied requests, which have a folder of their own.",
    )
    security_retention_ms: int = setting(30 * _DAY_MS, minimum=-1, doc="The same, by age.")
    administration_retention_bytes: int = setting(
        2 * 1024**3, minimum=-1, doc="The same for state changes and administrative events, which have another folder."
    )
    administration_retention_ms: int = setting(365 * _DAY_MS, minimum=-1, doc="The same, by age.")
    delete_unshipped: bool = setting(
        False,
        doc="Allow retention to delete segments without a `.shipped` file, which `klamm audit ship` or another "
        "program creates. If false, nothing is written at the limit until there is room.",
    )
    on_limit: str = setting(
        "delete_oldest",
        choices=("delete_oldest", "stop"),
        doc="Behaviour at `retention_bytes`: the oldest segments are deleted, or nothing is written until there "
        "is room; the queue then fills up and `on_full` applies.",
    )
    queue_capacity: int = setting(
        20_000,
        minimum=1,
        doc="Requests that may wait to be written, and as many again of other events; the same for authentications and "
        "denied requests.",
    )
    on_full: str = setting(
        "drop",
        choices=("drop", "block", "refuse"),
        doc="Behaviour when the queue is full: events are dropped and counted in an `audit_gap`, the connection's "
        "thread waits, or requests are answered with a retriable error.",
    )
    max_open_changes: int = setting(
        50_000, minimum=1, doc="State changes that may run, or wait to be written, at a time."
    )
    on_unrecordable_change: str = setting(
        REFUSE,
        choices=(REFUSE, ALLOW),
        doc="Treatment of a state change whose intent cannot be written beforehand: it is answered with a "
        "retriable error, or executed nevertheless.",
    )
    sync_intents: str = setting(
        "administrative",
        choices=("none", "administrative", "all"),
        doc="State changes whose intents are synced to the disk before they are executed, so that they survive a "
        "power failure: none; changes that people make, e.g. CreateTopics; or also those of groups, offsets "
        "and transactions.",
    )
    intent_sync_interval_ms: int = setting(
        5,
        minimum=0,
        maximum=1000,
        doc="The shortest time between two syncs of intents. State changes that come meanwhile share the next sync, so "
        "that no client, with rights or without, has the disk sync more often; 0 is no limit.",
    )
    signing_key: Path | None = setting(
        None,
        doc="File with the Ed25519 key that signs seals, as `klamm audit key FILE` writes it: PEM, mode 0600. Without "
        "one, seals are not signed.",
        private=True,
    )
    pseudonyms: tuple[str, ...] = setting(
        (),
        check=check_pseudonyms,
        doc="Names that events have as pseudonyms: `principal` for accounts, `address` for addresses of clients. Needs "
        "`pseudonym_key`.",
    )
    pseudonym_key: Path | None = setting(
        None,
        doc="File with the key that makes pseudonyms, as `klamm audit key FILE` writes it, mode 0600. The same for all "
        "servers; without it, no pseudonym leads to a name.",
        private=True,
    )
    topic: str = setting(
        "",
        doc="Topic of this server that also gets the events as records, e.g. `__audit`; empty is none. The "
        "server's api_set must have topics. klamm creates the topic with one partition if it does not exist.",
        check=_check_topic,
    )
    spark: dict[str, Any] = setting(
        {}, doc="Settings of the `klamm audit` commands; the server does not use them.", secret=True
    )
    detect: dict[str, Any] = setting(
        {}, doc="Settings of `klamm audit detect`; the server does not use them.", secret=True
    )
    readers: dict[str, Any] = setting(
        {}, doc="The readers of parts of the trail: for `klamm audit publish`, not for the server."
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield the problems of `pseudonyms` and of the tables below, so that not only the commands find them."""
        if self.pseudonyms and self.pseudonym_key is None:
            yield "pseudonyms", "needs pseudonym_key, a file of klamm audit key"
        if self.detect:
            from klamm_spark.settings.findings import DetectSettings

            for key, message in check_table(DetectSettings, self.detect):
                yield f"detect.{key}", message
        for name, table in self.readers.items():
            from klamm_spark.settings.readers import ReaderSettings

            for key, message in check_table(ReaderSettings, table if isinstance(table, dict) else {"": table}):
                yield f"readers.{name}.{key}", message
        if self.spark:
            from klamm_spark.settings.spark import SparkSettings

            for key, message in check_table(SparkSettings, self.spark):
                yield f"spark.{key}", message


_NOT_OF_THE_SPOOL: Final = frozenset(
    (
        *("spool", "spark", "detect", "readers"),
        *("level", "apis", "principals", "aggregate_above_per_second", "max_resources"),
        *("exclude_principals", "exclude_client_ids", "exclude_networks"),
    )
)
SINK_KEYS: Final = tuple(field.name for field in fields(AuditSettings) if field.name not in _NOT_OF_THE_SPOOL)
"""The settings of the spool itself. All listeners that use one spool must have the same values."""
