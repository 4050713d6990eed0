"""The check of a lake's rows against the seals by their bytes finds the same as a check of each line by itself."""

import random
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.audit_samples import line_of, sample_events, write_sample_spool

pytest.importorskip("pyarrow")
pytest.importorskip("deltalake")
pytest.importorskip("duckdb")
import pyarrow as pa
import pyarrow.parquet as pq

from klamm_spark import cli
from klamm_spark.lake.files import files_of
from klamm_spark.lake.layout import Lake
from klamm_spark.lake.rows import LakeRows, check_rows
from klamm_spark.lake.scanned import SegmentRows, scan
from klamm_spark.lake.seals import read_seals
from klamm_spark.lake.tasks import Tasks
from klamm_spark.lake.written import FILE
from klamm_spark.spool.event_lines import EVENT, WHOLE_LINES
from klamm_spark.spool.layout import line_digest, lines_sha256

SEGMENTS, EVENTS = 6, 20
MINUTE_US = 60_000_000


def ship(folder, step_us):
    """A lake of events of which some have a line that their columns do not give."""
    events = [
        event | ({"client_id": f'"{number}'} if number % 7 == 3 else {})
        for number, event in enumerate(sample_events(SEGMENTS * EVENTS, step_us=step_us))
    ]
    write_sample_spool(folder / "spool", events, events_per_segment=EVENTS)
    assert cli.main(["ship", "--once", "--spool", str(folder / "spool"), "--lake", str(folder / "lake")]) == 0
    return Lake(folder / "lake")


@pytest.fixture(scope="module")
def lakes(tmp_path_factory):
    """Two lakes: in the second one, most segments are in several files."""
    return [ship(tmp_path_factory.mktemp("lake"), step_us) for step_us in (1_000, 5 * MINUTE_US)]


def stem_of(row):
    return row["source_file"].rpartition("/")[2].partition(".")[0]


def without_nulls(value):
    if isinstance(value, dict):
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


def one_by_one(lake):
    """Return the digests of each segment's lines, by looking at row after row."""
    found = defaultdict(list)
    for file in files_of(lake):
        for row in pq.read_table(file.path, partitioning=None).to_pylist():
            line = next((row[name] for name in WHOLE_LINES if row[name] is not None), None)
            if line is None:
                line = line_of(without_nulls({name: row[name] for name in EVENT.names}))[:-1].decode()
            found[stem_of(row)].append(line_digest(line.encode()))
    return found


def swap(draw, rows):
    one, other = draw.sample(range(len(rows)), 2)
    rows[one], rows[other] = rows[other], rows[one]


def drop(draw, rows):
    del rows[draw.randrange(len(rows))]


def repeat(draw, rows):
    rows.insert(draw.randrange(len(rows)), dict(draw.choice(rows)))


def replace(draw, rows):
    rows[draw.randrange(len(rows))] = dict(draw.choice(rows))


def move(draw, rows):
    draw.choice(rows)["source_file"] = draw.choice(rows)["source_file"]


def change(draw, rows):
    row = draw.choice([row for row in rows if row["kept_line"] is None])
    row[draw.choice(["principal", "listener", "api_name"])] = draw.choice(["x", 'x"', None])


def reverse(_, rows):
    rows.reverse()


CHANGES = (swap, drop, repeat, replace, move, change, reverse)


@settings(max_examples=30)
@given(st.integers(0, 1 << 32), st.integers(0, 1), st.lists(st.sampled_from(CHANGES), max_size=3))
def test_what_is_found_is_what_each_row_by_itself_shows(lakes, seed, number, changes):
    lake, draw = lakes[number], random.Random(seed)
    path = draw.choice(files_of(lake)).path
    whole = Path(path).read_bytes()
    rows = pq.read_table(path, partitioning=None).to_pylist()
    for each in changes:
        if len(rows) > 1:
            each(draw, rows)
    try:
        pq.write_table(pa.Table.from_pylist(rows, FILE), path)
        seals, digests = read_seals(lake).seals, one_by_one(lake)
        expected = {
            stem
            for stem, seal in seals.items()
            if (lines_sha256(digests[stem]), len(digests[stem])) != (seal.lines_sha256, seal.events)
        }
        read = LakeRows.read(lake, Tasks())
        said = Counter(line.partition(":")[0] for line in check_rows(read, seals, {}))
        assert said.keys() - {path} == expected
    finally:
        Path(path).write_bytes(whole)


def test_a_file_as_it_was_shipped_has_the_bytes_of_its_segments(lakes):
    """Also where some of the lines are kept whole."""
    seals = read_seals(lakes[0]).seals
    found = [each for file in files_of(lakes[0]) for each in scan(file).segments.items()]
    assert sorted(found) == sorted((stem, SegmentRows(seal.events, seal.sha256)) for stem, seal in seals.items())
    assert len(seals) == SEGMENTS
