"""Settings of the `klamm audit` commands: `[audit.spark]`, and the spool of `[audit]`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from klamm import setting
from klamm.config import load_settings, read_tables
from klamm_spark.events.event import FORGETTABLE
from klamm_spark.settings.moments import parse_since
from klamm_spark.storage.filesystems import check_location, check_spool, parse_location
from klamm_spark.tlog.notes import NoteKey, check_name
from klamm_spark.tlog.submit import check_witness

NO_SPARK: Final = "none"


def _check_witnesses(texts: tuple[str, ...]) -> str | None:
    return next(filter(None, map(check_witness, texts)), None)


def _check_url(text: str) -> str | None:
    parts = urlsplit(text)
    is_url = parts.scheme in ("http", "https") and bool(parts.hostname)
    return None if is_url or not text else f'"{text}" must be a URL of HTTP'


def _check_keep(ages: dict[str, str]) -> str | None:
    wrong = next((kind for kind in ages if kind not in FORGETTABLE), None)
    if wrong is not None:
        return f'"{wrong}" is no kind of event that can be forgotten: {", ".join(FORGETTABLE)}'
    try:
        for age in ages.values():
            parse_since(age, datetime.now(UTC))
    except ValueError as error:
        return str(error)
    return None


def _check_vkeys(texts: tuple[str, ...]) -> str | None:
    try:
        for text in texts:
            NoteKey.parse(text)
    except ValueError as error:
        return str(error)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """`[audit.spark]`."""

    lake: str | Path = setting(
        Path("audit-lake"),
        doc="Folder that the events are shipped to, or a URI of an object store, `s3://BUCKET/FOLDER`.",
        check=check_location,
    )
    spool: str | Path = setting(
        "",
        doc="Folder or URI that sealed segments are copied to, if the commands do not read the server's own folder. "
        "Empty is the spool of `[audit]`.",
        check=lambda text: check_location(text) if text else None,
    )
    master: str = setting(
        NO_SPARK,
        doc="Where the tasks of `ship` run. With `none`, on threads of `ship` itself, without Spark and Java; "
        "otherwise on the executors of this master of Spark: `spark://HOST:PORT`, `yarn`, `k8s://…`, `local[N]`.",
    )
    driver_memory: str = setting("2g", doc="Memory of the driver's JVM, as Spark writes it.")
    trigger_interval_ms: int = setting(10_000, minimum=0, doc="Pause before `ship` looks again when nothing waits.")
    max_bytes_per_trigger: int = setting(
        64 * 1024**2, minimum=1, doc="Bytes of segments in one batch, in their size on disk; one segment at least."
    )
    max_files_per_trigger: int = setting(
        0,
        minimum=0,
        doc="Segments in one batch, in place of `max_bytes_per_trigger`; 0 is no limit of its own. A batch never has "
        "more than 4,096: their seals stand in one commit.",
    )
    anchor: str = setting(
        "",
        doc="Second place to which `ship` writes the newest seal of each stream, and checkpoints of the log: a file, "
        "or `MODULE:FUNCTION`, which it calls with each. Empty is none.",
    )
    key_ids: tuple[str, ...] = setting(
        (),
        doc="Ids of keys that `verify` trusts, as `klamm audit key` has printed them. Empty trusts those of the lake.",
    )
    lake_id: str = setting(
        "",
        doc="Id of the lake, as `klamm audit forget` has printed it: `verify` then accepts only records of "
        "forgotten events that name it. Empty is the id of the Delta table.",
    )
    keep: dict[str, str] = setting(
        {},
        check=_check_keep,
        doc="Ages at which `klamm audit forget` deletes events of a kind from the lake, if it is given none: "
        '`{ connection = "30d", request = "400d" }`. Proofs stay.',
    )
    log_key: Path | None = setting(
        None, doc="Key of `klamm audit key` that signs the checkpoints of the lake's log. Without one there is no log."
    )
    log_origin: str = setting(
        "klamm",
        check=check_name,
        doc="Name of the log in its checkpoints; witnesses know it by that: `example.com/audit`.",
    )
    log: Path | None = setting(
        None,
        doc="Folder of the log's files, for a web server. Unset is `tlog` in the lake, if that is a folder.",
    )
    witnesses: tuple[str, ...] = setting(
        (), check=_check_witnesses, doc="Witnesses that `ship` asks to cosign each checkpoint: `VKEY URL` of each."
    )
    vkeys: tuple[str, ...] = setting(
        (),
        check=_check_vkeys,
        doc="Keys of logs and witnesses, each of which must have signed the checkpoints that `verify` is given.",
    )
    timestamps: str = setting(
        "",
        check=_check_url,
        doc="URL of an authority that stamps checkpoints of the log with the time, by RFC 3161; needs "
        "`timestamp_roots` and `pip install 'klamm[timestamps]'`. Empty is none.",
    )
    timestamp_interval_ms: int = setting(3_600_000, minimum=0, doc="Time between two stamps.")
    timestamp_roots: Path | None = setting(
        None,
        doc="PEM file with the certificates of that authority: its root, and those between the root and the one that "
        "signs. `verify` checks the stamps by them.",
    )
    conf: dict[str, str] = setting({}, doc='Settings of Spark itself, by their names: `{ "spark.jars.ivy" = "…" }`.')


@dataclass(frozen=True, slots=True, kw_only=True)
class _SpoolSettings:
    spool: Path | None = setting(None, doc="Directory of the spool.", check=check_spool)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The spool and the settings of a command. `spool` is None if none is configured, and a str if it is a URI."""

    spool: str | Path | None
    settings: SparkSettings


def read_pipeline(file: Path | None, given: Mapping[str, Any]) -> Pipeline:
    """Return the settings `[audit.spark]`, and the spool of `[audit]` or of the first listener that has its own.

    `given` are arguments of the command. Values that are not None take precedence. Raises `klamm.ConfigError`.
    """
    spool: str | Path | None = given.get("spool")
    settings = SparkSettings()
    if file is not None:
        settings = load_settings(file, ("audit", "spark"), SparkSettings)
        settings = dataclasses.replace(settings, lake=parse_location(settings.lake, file.parent))
        if spool is None:
            spool = parse_location(settings.spool, file.parent) if settings.spool else _spool_of(file)
    changes = {key: value for key, value in given.items() if value is not None and key != "spool"}
    return Pipeline(spool, dataclasses.replace(settings, **changes))


def _spool_of(file: Path) -> Path | None:
    tables, _ = read_tables(file)
    listeners = tables.get("listeners", {})
    paths = [
        ("audit",),
        *(("listeners", name, "audit") for name in (listeners if isinstance(listeners, dict) else ())),
    ]
    for path in paths:
        found: Path | None = load_settings(file, path, _SpoolSettings, others=True).spool
        if found is not None:
            return found
    return None
