"""Attacks of someone who can write to the lake but has no key: on its rows, its files and its seals."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from klamm_spark.lake.layout import COMMITS, PARTITIONS, Lake
from klamm_spark.lake.seals import SealRow, read_seal_files, write_rows
from klamm_spark.lake.written import TABLE
from klamm_spark.spool.layout import Seal, chain_of, lines_sha256
from klamm_spark.spool.signatures import SealSigner

Rows = list[dict[str, Any]]


def live_files(lake: Lake) -> set[str]:
    """Return the data files of the newest version, by the table's commits."""
    found: set[str] = set()
    for commit in sorted((lake.events / COMMITS).glob("[0-9]*.json")):
        for line in commit.read_text("utf-8").splitlines():
            action = json.loads(line)
            found |= {action["add"]["path"]} if "add" in action else set()
            found -= {action["remove"]["path"]} if "remove" in action else set()
    return found


def change_commits(lake: Lake, path: Any, change: Callable[[dict[str, Any]], None]) -> None:
    """Change what the commits say about a file."""
    for commit in (lake.events / COMMITS).glob("[0-9]*.json"):
        actions = [json.loads(line) for line in commit.read_text("utf-8").splitlines()]
        for action in actions:
            if "add" in action and action["add"]["path"].endswith(path.name):
                change(action["add"])
        assert isinstance(commit, Path)
        commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
        commit.with_name(f".{commit.name}.crc").unlink(missing_ok=True)
        commit.with_suffix(".crc").unlink(missing_ok=True)


class LakeAttack:
    """One attack. A report must contain one of the names in `touched`: of events, segments or files."""

    def __init__(self, lake: Lake, choose: random.Random) -> None:
        self.lake, self.choose = lake, choose
        self.files = sorted(lake.events / name for name in live_files(lake))
        self.touched: set[str] = set()

    def rows(self, change: Callable[[Rows], Rows]) -> None:
        path = self.choose.choice(self.files)
        table = pq.ParquetFile(path).read()
        anything = pa.schema([field.with_nullable(True) for field in table.schema])
        self.write(path, pa.Table.from_pylist(change(table.to_pylist()), anything))

    def write(self, path: Any, table: pa.Table) -> None:
        # This is Spark's own type for timestamps.
        pq.write_table(table, path, use_deprecated_int96_timestamps=True)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        # The commits must have this size. Otherwise Spark would not read the changed file.
        change_commits(self.lake, path, lambda add: add.update(size=path.stat().st_size))

    def one(self, rows: Rows) -> dict[str, Any]:
        row = self.choose.choice(rows)
        self.touched.add(row["event_id"])
        return row

    def change_a_row(self) -> None:
        def change(rows: Rows) -> Rows:
            self.one(rows).update(principal="User:someone-else", outcome="ok ")
            return rows

        self.rows(change)

    def change_only_the_time_that_queries_use(self) -> None:
        def change(rows: Rows) -> Rows:
            row = self.one(rows)
            row["time"] += timedelta(minutes=1)
            return rows

        self.rows(change)

    def change_a_resource(self) -> None:
        def change(rows: Rows) -> Rows:
            row = self.one([row for row in rows if row["resources"]])
            row["resources"][0]["name"] = "other"
            return rows

        self.rows(change)

    def change_a_column(self, name: str) -> None:
        """Give a row another value of the same type."""

        def change(rows: Rows) -> Rows:
            row = self.one(rows)
            row[name] = self.other(row[name], TABLE.field(name).type)
            return rows

        self.rows(change)

    def other(self, value: Any, kind: pa.DataType) -> Any:
        if pa.types.is_list(kind):
            fields = list(kind.value_type)
            items = value or [dict.fromkeys(field.name for field in fields)]
            item, field = self.choose.choice(items), self.choose.choice(fields)
            item[field.name] = self.other(item[field.name], field.type)
            return items
        if pa.types.is_boolean(kind):
            return not value
        if pa.types.is_timestamp(kind):
            return value + timedelta(microseconds=self.choose.choice((-1, 1, 3_600_000_000)))
        if pa.types.is_string(kind):
            return f"{value or ''}{self.choose.choice(('x', ' ', 'é'))}"
        return (value or 0) + (0.001 if pa.types.is_floating(kind) else 1)

    def move_a_file_to_another_hour(self) -> None:
        """Move a file to another hour: change the hour in the file's commit."""

        def change(add: dict[str, Any]) -> None:
            add["partitionValues"]["hour"] = str(int(add["partitionValues"]["hour"]) + 1)

        self.say_of_a_file(change)

    def say_the_same_hour_otherwise(self) -> None:
        """Write the hour as one of the day before. Queries for the day then skip the file."""

        def change(add: dict[str, Any]) -> None:
            values = add["partitionValues"]
            earlier = date.fromisoformat(values["date"]) - timedelta(days=1)
            values.update(date=earlier.isoformat(), hour=str(int(values["hour"]) + 24))

        self.say_of_a_file(change)

    def say_a_year_that_python_has_not(self) -> None:
        def change(add: dict[str, Any]) -> None:
            add["partitionValues"]["date"] = f"+1{add['partitionValues']['date']}"

        self.say_of_a_file(change)

    def say_what_is_no_statistic(self) -> None:
        def change(add: dict[str, Any]) -> None:
            said = {"numRecords": 1, "minValues": {"seq": "x", "time_us": 1 << 60}}
            add["stats"] = self.choose.choice((json.dumps(said), "7", "", '{"numRecords": 1, "numRecords": 2}'))

        self.say_of_a_file(change)

    def say_a_statistic_that_not_all_readers_know(self) -> None:
        def change(add: dict[str, Any]) -> None:
            statistics = json.loads(add["stats"])
            forged = {
                "minValues": {"time": "+12026-01-01T00:00:00.000Z"},
                "maxValues": {"error_code": -5},
                "nullCount": {"resources": statistics["numRecords"]},
            }
            name = self.choose.choice(sorted(forged))
            add["stats"] = json.dumps(statistics | {name: forged[name]})

        self.say_of_a_file(change)

    def leave_out_a_column(self) -> None:
        """Leave out a column. All its values become null, but its commit says that there are none."""
        path = self.choose.choice(self.files)
        self.touched.add(str(path))
        self.write(path, pq.ParquetFile(path).read().drop_columns("certificate_subject"))
        change_commits(self.lake, path, lambda add: add.update(stats=_with_nulls(add, certificate_subject=0)))

    def name_another_file(self) -> None:
        """A path in a commit is a URI."""
        path = self.choose.choice(self.files)
        other = path.with_name("part-%41.parquet")
        self.touched.add(str(other))
        shutil.copy(path, other)
        shutil.copy(path, path.with_name("part-A.parquet"))
        change_commits(self.lake, path, lambda add: add.update(path=str(other.relative_to(self.lake.events))))

    def repeat_a_column(self) -> None:
        path = self.choose.choice(self.files)
        self.touched.add(str(path))
        table = pq.ParquetFile(path).read()
        self.write(path, table.append_column("principal", table.column("principal")))

    def write_a_column_in_capital_letters(self) -> None:
        path = self.choose.choice(self.files)
        self.touched.add(str(path))
        table = pq.ParquetFile(path).read().drop_columns("certificate_subject")
        self.write(path, table.append_column("Certificate_Subject", pa.array(["x"] * len(table))))

    def forge_events(self, *forged: dict[str, Any]) -> None:
        def change(rows: Rows) -> Rows:
            for row, values in zip(self.choose.sample(rows, len(forged)), forged, strict=True):
                self.touched.add(row["event_id"])
                row.update(values)
            return rows

        self.rows(change)

    def forge_a_gap_that_ends_before_it_begins(self) -> None:
        self.forge_events({"kind": "audit_gap", "gap_first_seq": 5, "gap_last_seq": 1})

    def forge_a_gap_of_no_boot(self) -> None:
        self.forge_events({"kind": "audit_gap", "action": "segments_deleted", "boot": None, "gap_first_seq": 5})

    def forge_interrupted_changes_of_no_node(self) -> None:
        interrupted = {"kind": "request", "action": "interrupted"}
        self.forge_events(interrupted, interrupted | {"node": None}, interrupted | {"seq": None})

    def forge_a_resource_that_is_none(self) -> None:
        self.forge_events({"kind": "request", "action": "interrupted", "resources": [None]})

    def say_of_a_file(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Change what the commits say about a file."""
        path = self.choose.choice(self.files)
        self.touched.add(str(path))
        self.touched |= {row["event_id"] for row in pq.ParquetFile(path).read().to_pylist()}
        change_commits(self.lake, path, change)

    def drop_a_row(self) -> None:
        def change(rows: Rows) -> Rows:
            gone = self.one(rows)
            return [row for row in rows if row is not gone]

        self.rows(change)

    def repeat_a_row(self) -> None:
        def change(rows: Rows) -> Rows:
            row = self.one(rows)
            self.touched.add(f"{row['boot']}-")
            return [*rows, row]

        self.rows(change)

    def insert_a_row(self) -> None:
        def change(rows: Rows) -> Rows:
            row = self.choose.choice(rows) | {"seq": 9_999}
            row["event_id"] = f"{row['node']}/{row['boot']}/9999"
            self.touched.add(row["event_id"])
            return [*rows, row]

        self.rows(change)

    def insert_a_row_of_an_unknown_segment(self) -> None:
        def change(rows: Rows) -> Rows:
            name = self.choose.choice(["", "replayed-1"])
            self.touched.add(f'"{name}": 1 rows')
            source = f"file:///spool/n/{name}.jsonl" if name else None
            return [*rows, self.choose.choice(rows) | {"source_file": source}]

        self.rows(change)

    def put_in_what_is_no_number(self) -> None:
        def change(rows: Rows) -> Rows:
            self.one([row for row in rows if row["duration_ms"] is None])["duration_ms"] = float("nan")
            return rows

        self.rows(change)

    def swap_rows(self) -> None:
        def change(rows: Rows) -> Rows:
            one, other = self.choose.sample(rows, 2)
            self.touched |= {one["event_id"], other["event_id"]}
            for key in ("event_id", "seq"):
                one[key], other[key] = other[key], one[key]
            return rows

        self.rows(change)

    def reorder_rows(self) -> None:
        def change(rows: Rows) -> Rows:
            self.touched |= {row["event_id"] for row in rows}
            names = [(row["event_id"], row["seq"]) for row in rows]
            for row, (event_id, seq) in zip(rows, [*names[1:], names[0]], strict=True):
                row.update(event_id=event_id, seq=seq)
            return rows

        self.rows(change)

    def move_a_row_to_another_segment(self) -> None:
        def change(rows: Rows) -> Rows:
            row = self.one(rows)
            others = {each["source_file"] for path in self.files for each in pq.ParquetFile(path).read().to_pylist()}
            row["source_file"] = self.choose.choice(sorted(others - {row["source_file"]}))
            return rows

        self.rows(change)

    def drop_a_file(self) -> None:
        path = self.choose.choice(self.files)
        self.touched |= {row["event_id"] for row in pq.ParquetFile(path).read().to_pylist()}
        path.unlink(missing_ok=True)

    def damage_a_file(self) -> None:
        path = self.choose.choice(self.files)
        self.touched |= {row["event_id"] for row in pq.ParquetFile(path).read().to_pylist()}
        Path(str(path)).write_bytes(b"damaged")
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)

    def swap_files(self) -> None:
        folders = sorted({path.parent for path in self.files})
        one, other = (
            self.choose.choice([path for path in self.files if path.parent == folder])
            for folder in self.choose.sample(folders, 2)
        )
        tables = [pq.ParquetFile(path).read() for path in (one, other)]
        self.touched |= {row["event_id"] for table in tables for row in table.to_pylist()}
        self.write(one, tables[1])
        self.write(other, tables[0])

    def drop_a_seal(self) -> None:
        rows = self.seals()
        gone = self.choose.choice(rows)
        self.touched.add(gone.segment)
        self.write_seals([row for row in rows if row is not gone])

    def swap_seals(self) -> None:
        rows = self.seals()
        one, other = self.choose.sample(range(len(rows)), 2)
        self.touched |= {rows[one].segment, rows[other].segment}
        first, second = rows[one], rows[other]
        rows[one], rows[other] = first._replace(seal=second.seal), second._replace(seal=first.seal)
        self.write_seals(rows)

    def seals(self) -> list[SealRow]:
        return [row for file in read_seal_files(self.lake, lines_of=None) for row in file.rows]

    def write_seals(self, rows: list[SealRow]) -> None:
        for path in list(self.lake.seals.glob("*.parquet")):
            path.unlink(missing_ok=True)
        write_rows(self.lake, rows)

    def make_seals_fit(self, digests: dict[str, list[str]], signer: SealSigner | None = None) -> None:
        """Write digests of the present rows into the seals, make their chain fit, and sign them with a key."""
        fitting = []
        chains: dict[str, str] = {}
        for row in sorted(self.seals(), key=lambda row: int(json.loads(row.seal)["index"])):
            there = digests.get(row.segment, [])
            seal = json.loads(row.seal) | {"lines_sha256": lines_sha256(there), "events": len(there)}
            seal["previous_chain"] = chains.get(seal["node"], seal["previous_chain"])
            seal["chain"] = chain_of(seal["previous_chain"], seal["sha256"], seal["lines_sha256"])
            chains[seal["node"]] = seal["chain"]
            text = json.dumps(seal)
            if signer is not None:
                text = signer.signed(Seal.parse(text)).to_json().decode()
            fitting.append(row._replace(seal=text, lines="".join(there)))
        self.write_seals(fitting)


def _with_nulls(add: dict[str, Any], **nulls: int) -> str:
    statistics = json.loads(add["stats"])
    return json.dumps(statistics | {"nullCount": statistics.get("nullCount", {}) | nulls})


WAYS = (
    *("say_the_same_hour_otherwise", "say_a_year_that_python_has_not", "say_what_is_no_statistic"),
    *("say_a_statistic_that_not_all_readers_know", "leave_out_a_column", "name_another_file", "repeat_a_column"),
    *("forge_a_gap_that_ends_before_it_begins", "forge_a_gap_of_no_boot"),
    *("write_a_column_in_capital_letters", "forge_interrupted_changes_of_no_node", "forge_a_resource_that_is_none"),
    "insert_a_row_of_an_unknown_segment",
    "put_in_what_is_no_number",
    *("change_a_row", "change_only_the_time_that_queries_use", "change_a_resource", "drop_a_row", "repeat_a_row"),
    *("insert_a_row", "swap_rows", "reorder_rows", "move_a_row_to_another_segment", "drop_a_file", "damage_a_file"),
    *("swap_files", "drop_a_seal", "swap_seals", "move_a_file_to_another_hour"),
)
UNPROVEN = ("shipped_time", "source_file")
"""Columns that nothing proves, except the name of the segment: see docs/audit/operations.md."""
COLUMNS = tuple(name for name in TABLE.names if name not in (*UNPROVEN, *PARTITIONS))
