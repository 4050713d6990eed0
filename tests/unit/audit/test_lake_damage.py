"""Tables of the lake with values that klamm never writes: errors name the file, and there is no traceback."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("deltalake")
import pyarrow as pa

from klamm_spark import cli
from klamm_spark.errors import LakeError
from klamm_spark.lake import parquet
from klamm_spark.lake.files import TableFile, files_of, read_columns
from klamm_spark.lake.forgotten import Record, digests_sha256, read_forgotten
from klamm_spark.lake.layout import Lake
from klamm_spark.lake.scanned import scan
from klamm_spark.lake.seals import line_digests, read_seals
from klamm_spark.lake.text_files import read_text_files, write_text_file
from klamm_spark.spool.layout import Seal
from klamm_spark.spool.signatures import KeyFileError
from tests.audit_samples import sample_events, write_sample_spool

ROOT = Path(__file__).parents[3]
NO_TEXTS = (None, 7, True, 1.5, [], {}, [None], "ä", "\ud800")


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path / "lake")


@pytest.fixture
def seal(tmp_path):
    (path,) = write_sample_spool(tmp_path / "spool", sample_events(10))
    return Seal.read(path.with_suffix(".seal"))


def record_of(seal):
    values = {"segment": seal.segment, "forgotten_time_us": 1, "before_us": 1, "kinds": "all", "lines": 1, "seqs": "0"}
    return Record(**values, whole=False, digests_sha256=digests_sha256(""), lake="one")


def write(folder, **columns):
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "file.parquet"
    pq.write_table(pa.table({name: [value] for name, value in columns.items()}), path)
    return path


def damaged(values):
    """Yield JSON objects with one value of another type, and text that is not an object."""
    for name in values:
        for value in NO_TEXTS:
            if type(value) is not type(values[name]):
                yield json.dumps({**values, name: value})
    yield from ("null", "7", '"x"', "[]", "{}", "", "[" * 100_000, '{"seq": ' + "9" * 5_000 + "}")


OTHER_VALUES = pytest.mark.parametrize("value", [None, 7, 1.5, [], {"a": 1}, b"\xff"])


@OTHER_VALUES
@pytest.mark.parametrize("column", ["segment", "node", "boot", "seal", "lines"])
def test_a_column_of_seals_without_texts_is_damage_of_its_file(lake, seal, column, value):
    texts = {"segment": seal.segment, "node": seal.node, "boot": seal.boot, "seal": seal.to_json().decode()}
    path = write(lake.seals, **(texts | {"lines": ""} | {column: value}))
    if column != "lines":
        (line,) = read_seals(lake).breaks
        assert line == f"{path} cannot be read: a value is no text"
    assert dict(line_digests(lake, [seal.segment])) == {}


@OTHER_VALUES
@pytest.mark.parametrize("column", ["segment", "record", "digests"])
def test_a_column_of_records_without_texts_is_damage_of_its_file(lake, seal, column, value):
    texts = {"segment": seal.segment, "record": record_of(seal).to_json().decode(), "digests": ""}
    write(lake.forgotten, **texts)
    assert list(read_forgotten(lake, "one").segments) == [seal.segment]
    path = write(lake.forgotten, **(texts | {column: value}))
    known = read_forgotten(lake, "one")
    assert (known.segments, known.breaks) == ({}, [f"{path} cannot be read: a value is no text"])


def test_a_table_without_its_columns_is_damage(lake):
    for folder, read in ((lake.seals, read_seals), (lake.forgotten, lambda lake: read_forgotten(lake, "one"))):
        path = write(folder, other="x")
        (line,) = read(lake).breaks
        assert line.startswith(f"{path} cannot be read: ")


def test_an_invalid_seal_is_named_with_its_file(lake, seal):
    for text in damaged(json.loads(seal.to_json())):
        path = write(lake.seals, segment=seal.segment, node=seal.node, boot=seal.boot, seal=text, lines="")
        known = read_seals(lake)
        assert known.seals == {}, text
        assert any(line.startswith(f"{path}: ") for line in known.breaks), text


def test_an_invalid_record_is_named_with_its_file(lake, seal):
    for text in damaged(json.loads(record_of(seal).to_json())):
        path = write(lake.forgotten, segment=seal.segment, record=text, digests="")
        known = read_forgotten(lake, "one")
        assert known.segments == {}, text
        assert any(line.startswith(f"{path}: ") for line in known.breaks), text


def test_an_invalid_key_is_named(lake):
    path = lake.root / "keys" / "~forget" / "x.pub"
    path.parent.mkdir(parents=True)
    path.write_text("no key")
    with pytest.raises(KeyFileError, match=f"^{path}: no public key in PEM"):
        read_forgotten(lake, "one")


def test_a_reader_sees_all_rows_while_compact_runs(lake):
    """After `compact` has listed its first file, the others become one."""
    paths = [write_text_file(lake.seals, ("name",), [(str(number),)]) for number in range(4)]
    files = read_text_files(lake.seals, ("name",))
    found = [next(files)]
    write_text_file(lake.seals, ("name",), [(str(number),) for number in range(4)])
    for path in paths:
        path.unlink()
    found += files
    assert {row for file in found for row in file.rows} == {(str(number),) for number in range(4)}
    assert [file.problem for file in found] == ["", ""]


def test_a_missing_file_of_the_table_is_named(lake):
    lake.seals.mkdir(parents=True)
    (lake.seals / "x.parquet").symlink_to("nowhere")
    (file,) = read_text_files(lake.seals, ("name",))
    assert file.problem.startswith("cannot be read: ")


def test_texts_in_lists_are_read_from_a_file_of_several_row_groups(tmp_path):
    import pyarrow.parquet as pq

    names = [[{"name": f"topic-{number % 7}"}] for number in range(250)]
    path = tmp_path / "file.parquet"
    pq.write_table(pa.table({"resources": names}), path, row_group_size=100)
    batches = read_columns([TableFile(str(path), None)], ["resources"])
    assert [row["resources"] for batch in batches for row in batch.to_pylist()] == names


@pytest.fixture(params=["1.0", "2.0"])
def written(request, tmp_path):
    """Return a file of several pages, and its rows."""
    import pyarrow.parquet as pq

    path = tmp_path / "file.parquet"
    table = pa.table({"name": ["a", None, "bc"] * 20, "number": list(range(60)), "list": [[1.5]] * 60})
    pq.write_table(table, path, data_page_version=request.param, data_page_size=64, compression="zstd")
    return path, table


def rows_of(path, columns):
    try:
        return [row for batch in read_columns([TableFile(str(path), None)], columns) for row in batch.to_pylist()]
    except LakeError as error:
        return str(error)


def test_a_page_with_a_changed_byte_is_read_or_named(written):
    path, table = written
    whole = path.read_bytes()
    footer_at = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    assert rows_of(path, table.column_names) == table.to_pylist()
    said = []
    for at in range(4, footer_at):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        said.append(rows_of(path, table.column_names))
    named = [each for each in said if isinstance(each, str)]
    assert all(each.startswith(f"{path} cannot be read: ") for each in named)
    assert any("has no size" in each or "has a header" in each for each in named)


def test_a_schema_of_other_columns_than_the_rows_is_named(written):
    path, table = written
    path.write_bytes(path.read_bytes().replace(b"\x04name", b"\x04nome", 1))
    assert rows_of(path, table.column_names).startswith(f"{path} cannot be read: its schema")


@pytest.mark.parametrize(("column", "value"), [("seq", 0.0), ("request_bytes", True), ("total_time_ms", -0.0)])
def test_a_row_that_keeps_its_line_has_values_of_its_types(tmp_path, column, value):
    """In Python `1`, `1.0` and `True` are equal; in other readers they are not."""
    import pyarrow.parquet as pq

    event = next(sample_events(1)) | {"client_id": 'a"b', "request_bytes": 1, "total_time_ms": 0.0}
    write_sample_spool(tmp_path / "spool", [event])
    assert cli.main(["ship", "--once", "--spool", str(tmp_path / "spool"), "--lake", str(tmp_path / "lake")]) == 0
    (file,) = files_of(Lake(tmp_path / "lake"))
    whole = scan(file).segments
    rows = pq.ParquetFile(file.path).read()
    assert rows.column("kept_line").null_count == 0
    pq.write_table(rows.set_column(rows.column_names.index(column), column, [[value]]), file.path)
    assert scan(file).segments.keys() == whole.keys()
    assert scan(file).segments != whole


def test_list_items_that_take_few_bytes_in_a_file_count_together(tmp_path, monkeypatch):
    """All items of a list may belong to one row."""
    import pyarrow.parquet as pq

    nothing = pa.nulls(6_000, pa.int64())
    items = pa.StructArray.from_arrays([nothing] * 16, [f"field{number}" for number in range(16)])
    path = tmp_path / "file.parquet"
    pq.write_table(pa.table({"list": pa.ListArray.from_arrays(pa.array([0, len(items)], pa.int32()), items)}), path)
    monkeypatch.setattr(parquet, "_MOST_GROUP_BYTES", 16 * 6_000 * 12)
    assert rows_of(path, ["list"]) != []
    monkeypatch.setattr(parquet, "_MOST_GROUP_BYTES", 16 * 6_000 * 12 - 1)
    assert "of its rows unpack to" in rows_of(path, ["list"])


CHANGED_FOOTERS = """
import sys
import pyarrow as pa
from klamm_spark.lake.parquet import batches_of, open_parquet
whole = open(sys.argv[1], "rb").read()
end = len(whole) - 8
named = 0
for at in range(end - int.from_bytes(whole[end : end + 4], "little"), end):
    for mask in (0x01, 0x02, 0x08, 0x30):
        data = whole[:at] + bytes([whole[at] ^ mask]) + whole[at + 1 :]
        try:
            with open_parquet(pa.BufferReader(data)) as parquet:
                list(batches_of(parquet))
        except (OSError, ValueError):
            named += 1
print(named)
"""


def test_no_changed_footer_ends_the_process(tmp_path):
    """With some of these footers PyArrow ends the process instead of raising an error."""
    import pyarrow.parquet as pq

    path = tmp_path / "file.parquet"
    pq.write_table(pa.table({"name": ["a", None], "list": [[1], None]}), path)
    done = subprocess.run(
        [sys.executable, "-c", CHANGED_FOOTERS, path], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr[-1000:]
    assert int(done.stdout) > 100


@pytest.mark.parametrize("values", [None, ["soon"]])
@pytest.mark.parametrize("command", ["report", "detect"])
def test_a_file_without_times_is_named(tmp_path, command, values, capsys):
    import pyarrow.parquet as pq

    write_sample_spool(tmp_path / "spool", sample_events(1))
    assert cli.main(["ship", "--once", "--spool", str(tmp_path / "spool"), "--lake", str(tmp_path / "lake")]) == 0
    (file,) = files_of(Lake(tmp_path / "lake"))
    rows = pq.ParquetFile(file.path).read().drop_columns(["time_us"])
    pq.write_table(rows if values is None else rows.append_column("time_us", [values]), file.path)
    capsys.readouterr()
    assert cli.main([command, str(tmp_path / "lake")]) == 2
    assert f"{file.path} cannot be read: " in capsys.readouterr().err
