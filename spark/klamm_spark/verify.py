"""`klamm audit verify`: which numbers of the sequences are in the spool, which in the lake, and what is missing where.

Sequence numbers begin with 0 and have no gaps but those that `audit_gap` events tell, so that sets of them, kept as
ranges, prove what was lost: an event is identified by node, boot and number. Where a life ends, its last seal says, or
an `audit_gap` of the next one. The hash chain of the spool tells what was changed, removed or inserted there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as F

from klamm_spark.event import AUDIT_GAP
from klamm_spark.filesystems import AnyPath, HadoopPath, parse_location, path_from_uri, path_of
from klamm_spark.lake import Lake, LakeError, delta_commits, delta_orphan_files, orphan_files
from klamm_spark.ranges import Ranges
from klamm_spark.spark_settings import Pipeline
from klamm_spark.spool_chain import Digest, NodeFolder, OneByOne, digest_of, read_folder
from klamm_spark.spool_layout import SEAL_SUFFIX, Seal, node_folders, parse_name
from klamm_spark.spool_reader import SEGMENT_GLOB, segments, spool_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXIT_FOUND: Final = 1
SEGMENTS_DELETED: Final = "segments_deleted"
_GAP_COLUMNS: Final = ("node", "boot", "kind", "action", "gap_boot", "gap_first_seq", "gap_last_seq")
_READ: Final = {
    **dict.fromkeys(("node", "boot", "kind", "action", "gap_boot"), "string"),
    **dict.fromkeys(("seq", "gap_first_seq", "gap_last_seq"), "long"),
}


class Life(NamedTuple):
    """One life of one server, whose events are numbered from 0."""

    node: str
    boot: str


@dataclass(slots=True)
class Finding:
    """What is wrong, or worth knowing, about one life.

    `not_shipped` are in sealed segments and not in the lake; `lost` are in neither, from 0 to the last number that is
    known of, and no `audit_gap` tells of them; `told` are in neither and told of; `only_in_lake` are gone from the
    spool; `duplicates` are in the lake more than once. A crash took what came from `crashed_from` on, if anything, and
    an `audit_gap` tells so; nobody tells how a life ended that has an `unended_from`.
    """

    not_shipped: Ranges = field(default_factory=Ranges)
    lost: Ranges = field(default_factory=Ranges)
    told: Ranges = field(default_factory=Ranges)
    only_in_lake: Ranges = field(default_factory=Ranges)
    duplicates: Ranges = field(default_factory=Ranges)
    crashed_from: int | None = None
    unended_from: int | None = None

    @property
    def sound(self) -> bool:
        """Whether every event that was written is in the lake exactly once, or told to be missing."""
        return not (self.not_shipped or self.lost or self.duplicates) and self.unended_from is None


@dataclass(slots=True)
class Told:
    """What `audit_gap` events say: numbers that are missing, from where on a crash took what there was, and the nodes
    whose retention deleted segments."""

    ranges: dict[Life, Ranges] = field(default_factory=dict)
    crashed: dict[Life, int] = field(default_factory=dict)
    deleting_nodes: set[str] = field(default_factory=set)


def run(spark: SparkSession, pipeline: Pipeline, *, say: Callable[[str], None]) -> int:
    """Compare, and say every gap and orphan; 1 if events are missing or doubled. Raises LakeError."""
    spool = parse_location(spool_of(pipeline), Path())
    # A folder is told as it was given.
    place = spool if isinstance(spool, Path) else path_of(spool, spark)
    if not place.is_dir():
        raise LakeError(f"there is no spool at {place}")
    lake = Lake.of(pipeline.settings, spark)
    lake.require_events()
    # The spool first: what is sealed and shipped meanwhile must not look lost.
    content = SparkContent(spark) if isinstance(place, HadoopPath) else OneByOne()
    folders = [read_folder(folder, content) for folder in node_folders(place)]
    lines = _spool_lines(spark, place)
    in_spool = sequence_ranges(_numbered(lines)) if lines is not None else {}
    shipped = lake.read_events(spark)
    in_lake = sequence_ranges(shipped)
    told = told_gaps(shipped if lines is None else _gaps_of(shipped).unionByName(_gaps_of(_numbered(lines))))
    add_gaps(told, (gap for folder in folders for gap in folder.gaps))
    findings = compare(in_spool, in_lake, told, doubled(shipped), known_ends(folders))
    for life in sorted(findings):
        say(f"{life.node}/{life.boot}: spool {_size(in_spool, life)}, lake {_size(in_lake, life)}")
        for line in _lines(findings[life]):
            say(f"  {line}")
    breaks = [line for folder in folders for line in folder.breaks]
    breaks += [line for folder in folders for line in _beginning(folder, shipped, told)]
    for line in breaks:
        say(f"broken chain: {line}")
    for path in _orphans(spark, lake):
        say(f"orphan: {path} is not in the commit log, and read by nobody")
    bad_lines = lake.read_quarantine(spark).count()
    if bad_lines:
        say(f"quarantine: {bad_lines:,} lines that are no events")
    sound = not breaks and all(finding.sound for finding in findings.values())
    say("every event of the spool is in the lake exactly once" if sound else "the lake does not hold what it must")
    return 0 if sound else EXIT_FOUND


def compare(
    spool: Mapping[Life, Ranges],
    lake: Mapping[Life, Ranges],
    told: Told,
    duplicates: Mapping[Life, Ranges],
    ends: Ends,
) -> dict[Life, Finding]:
    """A finding for every life that the spool, the lake or an `audit_gap` knows of."""
    findings = {}
    for life in spool.keys() | lake.keys() | told.ranges.keys() | told.crashed.keys() | ends.next_seqs.keys():
        written, shipped = spool.get(life, Ranges()), lake.get(life, Ranges())
        known, crashed = told.ranges.get(life, Ranges()), told.crashed.get(life)
        lasts = [last for ranges in (written, shipped, known) for _, last in ranges]
        next_seq = max([*(last + 1 for last in lasts), crashed or 0, ends.next_seqs.get(life, 0)])
        missing = Ranges([(0, next_seq - 1)] if next_seq else []) - (written | shipped)
        findings[life] = Finding(
            not_shipped=written - shipped,
            lost=missing - known,
            told=missing & known,
            only_in_lake=shipped - written,
            duplicates=duplicates.get(life, Ranges()),
            crashed_from=crashed,
            unended_from=next_seq if crashed is None and life in ends.not_in_order else None,
        )
    return findings


class Ends(NamedTuple):
    """What seals and open segments say: the number after the last one that a life must have had, and which lives are
    over without a seal that says so."""

    next_seqs: Mapping[Life, int]
    not_in_order: frozenset[Life]


def known_ends(folders: Iterable[NodeFolder]) -> Ends:
    """Of all lives that have a file in the spool."""
    next_seqs: dict[Life, int] = {}
    final: dict[Life, bool] = {}
    newest: dict[str, str] = {}
    for folder in folders:
        for boot, seal in folder.ends.items():
            life = Life(folder.node, boot)
            next_seqs[life] = max(seal.last_seq + 1, next_seqs.get(life, 0))
            final[life] = seal.final or final.get(life, False)
        for boot, first_seq in folder.open.items():
            life = Life(folder.node, boot)
            next_seqs[life] = max(first_seq, next_seqs.get(life, 0))
        newest[folder.node] = max([newest.get(folder.node, ""), *folder.ends, *folder.open])
    over = (life for life, ended in final.items() if not ended and life.boot < newest[life.node])
    return Ends(next_seqs, frozenset(over))


def sequence_ranges(events: DataFrame) -> dict[Life, Ranges]:
    """The numbers of each life, as ranges; Spark finds the ranges, so that what comes back is small."""
    in_order = Window.partitionBy("node", "boot").orderBy("seq")
    islands = (
        events.select("node", "boot", "seq")
        .distinct()
        .withColumn("island", F.col("seq") - F.row_number().over(in_order))
        .groupBy("node", "boot", "island")
        .agg(F.min("seq").alias("first"), F.max("seq").alias("last"))
    )
    return _collect(islands)


def told_gaps(events: DataFrame) -> Told:
    """What `audit_gap` events say is missing."""
    told = Told()
    add_gaps(told, (row.asDict() for row in _gaps_of(events).distinct().collect()))
    return told


def add_gaps(told: Told, gaps: Iterable[Mapping[str, Any]]) -> None:
    """Add what other `audit_gap` events say. Without a last number, it is not known how many are missing."""
    found: dict[Life, list[tuple[int, int]]] = defaultdict(list)
    for gap in gaps:
        if gap.get("action") == SEGMENTS_DELETED:
            told.deleting_nodes.add(gap["node"])
        life, first, last = Life(gap["node"], gap.get("gap_boot") or gap["boot"]), *_bounds(gap)
        if first is not None and last is not None:
            found[life].append((first, last))
        elif first is not None:
            told.crashed[life] = min(first, told.crashed.get(life, first))
    for life, pairs in found.items():
        told.ranges[life] = Ranges(pairs) | told.ranges.get(life, Ranges())


def _bounds(gap: Mapping[str, Any]) -> tuple[int | None, int | None]:
    return gap.get("gap_first_seq"), gap.get("gap_last_seq")


def _gaps_of(events: DataFrame) -> DataFrame:
    return events.where(F.col("kind") == AUDIT_GAP).select(*_GAP_COLUMNS)


def doubled(events: DataFrame) -> dict[Life, Ranges]:
    """Numbers that are there more than once."""
    counted = events.groupBy("node", "boot", "seq").count().where("count > 1")
    return _collect(counted.select("node", "boot", F.col("seq").alias("first"), F.col("seq").alias("last")))


def _beginning(folder: NodeFolder, shipped: DataFrame, told: Told) -> Iterator[str]:
    """A break if segments before the first one are gone that neither were shipped nor told of by retention."""
    first = folder.first
    if first is None or not first.index or folder.node in told.deleting_nodes:
        return
    earlier = shipped.where(F.col("node") == folder.node).select(
        F.regexp_extract("source_file", r"([^/]+)\.jsonl", 1).alias("stem")
    )
    count = earlier.where(F.col("stem") < first.segment).distinct().count()
    if count < first.index:
        yield (
            f"{first.segment} is segment {first.index:,} of {folder.node}; of those before it {count:,} are in the "
            "lake, and no audit_gap tells of the others"
        )


class SparkContent:
    """Seals and segments by Spark, all of a folder at once, so that a store is not asked for one after the other and
    no segment comes to the driver."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._seals: dict[AnyPath, bytes] = {}
        self._digests: dict[AnyPath, Digest] = {}

    def stems(self, folder: AnyPath) -> set[str]:
        rows = self._files(f"*{SEAL_SUFFIX}", folder).select("file", F.col("value").cast("binary").alias("data"))
        self._seals = {path_from_uri(row["file"], folder): bytes(row["data"]) for row in rows.collect()}
        return {path.stem for path in self._seals if parse_name(path.name)}

    def seal(self, path: AnyPath) -> Seal:
        data = self._seals.get(path)
        if data is None:
            raise FileNotFoundError(str(path))
        return Seal.parse(data)

    def begin(self, segments: Sequence[AnyPath]) -> None:
        self._digests = {}
        if segments:
            sha256 = F.sha2(F.col("value").cast("binary"), 256).alias("sha256")
            lines = (F.length("value") - F.length(F.replace("value", F.lit("\n")))).alias("lines")
            for row in self._files(SEGMENT_GLOB, segments[0].parent).select("file", sha256, lines).collect():
                self._digests[path_from_uri(row["file"], segments[0])] = Digest(row["sha256"], row["lines"])

    def digest(self, segment: AnyPath) -> Digest | None:
        found = self._digests.get(segment)
        # Spark leaves out what it cannot unpack.
        return digest_of(b"") if found is None and segment.exists() else found

    def _files(self, pattern: str, folder: AnyPath) -> DataFrame:
        return (
            self._spark.read.format("text")
            .options(wholetext=True, pathGlobFilter=pattern, ignoreCorruptFiles=True, ignoreMissingFiles=True)
            .load(str(folder))
            .select("value", F.col("_metadata.file_path").alias("file"))
        )


def _orphans(spark: SparkSession, lake: Lake) -> Sequence[AnyPath]:
    if lake.sink == "delta":
        files = lake.read(spark).inputFiles
        return delta_orphan_files(lake.events, files, lambda log: delta_commits(spark, log))
    return orphan_files(lake.events)


def _spool_lines(spark: SparkSession, spool: AnyPath) -> DataFrame | None:
    if next(segments(spool), None) is None:
        return None
    return (
        spark.read.format("text")
        .option("recursiveFileLookup", "true")
        .option("pathGlobFilter", SEGMENT_GLOB)
        # The chain tells what cannot be unpacked, and retention may take what was listed.
        .options(ignoreCorruptFiles=True, ignoreMissingFiles=True)
        .load(str(spool.resolve()))
    )


def _numbered(lines: DataFrame) -> DataFrame:
    # An event that cannot be read whole counts too: it is in the quarantine, and not in the lake as it should be.
    event = F.from_json("value", ", ".join(f"{name} {kind}" for name, kind in _READ.items())).alias("event")
    return lines.select(event).select("event.*").dropna(subset=["node", "boot", "seq"])


def _collect(rows: DataFrame) -> dict[Life, Ranges]:
    found: dict[Life, list[tuple[int, int]]] = defaultdict(list)
    for row in rows.select("node", "boot", "first", "last").collect():
        found[Life(row["node"], row["boot"])].append((row["first"], row["last"]))
    return {life: Ranges(pairs) for life, pairs in found.items()}


def _size(where: Mapping[Life, Ranges], life: Life) -> str:
    ranges = where.get(life)
    return f"{ranges.count():,} events ({ranges})" if ranges else "nothing"


def _lines(finding: Finding) -> Iterator[str]:
    named = {
        "not shipped": finding.not_shipped,
        "lost, and no audit_gap tells why": finding.lost,
        "more than once in the lake": finding.duplicates,
        "told by audit_gap": finding.told,
        "gone from the spool": finding.only_in_lake,
    }
    yield from (f"{name}: {ranges}" for name, ranges in named.items() if ranges)
    if finding.crashed_from is not None:
        yield f"told by audit_gap: a crash took what there was from {finding.crashed_from} on"
    if finding.unended_from is not None:
        yield f"no end, and no audit_gap tells why: from {finding.unended_from} on"
