"""Files of a few kilobytes that unpack to huge amounts of memory. A process with little memory names each of them."""

import argparse
import ast
import functools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import klamm_spark
from klamm_spark import cli
from klamm_spark.lake.seals import SealRow
from tests.audit_samples import sample_events, write_sample_spool
from tests.unit.audit.logged_lake import signer_in
from tests.unit.audit.made_parquet import MADE

pa = pytest.importorskip("pyarrow")
pytest.importorskip("deltalake")
pytest.importorskip("resource", reason="limits of memory are of Unix")

# The audit's tools are not compiled.
pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[3]
LIMIT_BYTES = 4 * 1024**3
PEAK_MIB = 2_500
TEXT = "x" * (1 << 20)
ROWS_OF_A_GROUP, GROUPS, ROWS_OF_A_DICTIONARY = 50, 30, 6_000
AT_ONCE = 1_000_000
BOMBS = ("dictionary", "delta", "fixed", "pages")
RUN = f"""
import contextlib, io, json, resource, shlex, sys
resource.setrlimit(resource.RLIMIT_AS, ({LIMIT_BYTES}, {LIMIT_BYTES}))
from klamm_spark import cli
for line in sys.stdin:
    said = io.StringIO()
    print(line, file=sys.stderr)
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            code = cli.main(shlex.split(line))
        except SystemExit as ended:
            code = ended.code
    print(json.dumps([code, said.getvalue(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10]))
"""
MORE = {"ship": "--once", "forget": "--older-than 1d", "prove": "--line event"}
"""Arguments that commands require."""
CODES = {0, 1, 2, 3, 4}


def commands_on_lakes():
    (commands,) = (each for each in cli.parser()._actions if isinstance(each, argparse._SubParsersAction))
    for name, command in commands.choices.items():
        if any("--lake" in each.option_strings for each in command._actions):
            yield name


def kind_of(path):
    return "checkpoint" if "checkpoint" in path.name else path.parts[path.parts.index("lake") + 1]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return a folder with a spool, and with a lake that has a file of each kind."""
    from klamm_spark.lake.files import files_of
    from klamm_spark.lake.layout import Lake

    folder = tmp_path_factory.mktemp("bombs")
    signer_in(folder, "log")
    events = list(sample_events(40))
    (folder / "event").write_text(json.dumps(events[-1], separators=(",", ":")))
    (folder / "audit.toml").write_text(
        '[audit]\nspool = "spool"\n[audit.spark]\nlake = "lake"\nlog_key = "log"\nlog_origin = "example.com/log"\n'
    )
    for at in (0, 20):
        write_sample_spool(folder / "spool", events[at : at + 20])
        assert cli.main(["ship", str(folder / "audit.toml"), "--once"]) == 0
    assert cli.main(["forget", str(folder / "audit.toml"), "--older-than", "1d", "--kind", "connection"]) == 0
    write_sample_spool(folder / "spool", sample_events(20, node="node-2"))
    assert cli.main(["ship", str(folder / "audit.toml"), "--once"]) == 0
    lake = Lake(folder / "lake")
    lake.table().create_checkpoint()
    named = {file.path for file in files_of(lake)}
    for path in lake.events.glob("date=*/*/*.parquet"):
        if str(path) not in named:
            path.unlink()
    return folder


def place_bomb(path, bomb):
    """Write a file with its first row repeated many times, and with a long text in its last column of texts."""
    import pyarrow.parquet as pq

    table = pq.read_table(path, partitioning=None)
    outer = "add" if "add" in table.column_names else ""
    row = next(at for at in range(len(table)) if not outer or table.column(outer)[at].is_valid)
    count = ROWS_OF_A_DICTIONARY if bomb == "dictionary" else ROWS_OF_A_GROUP
    places = pa.array([None] * len(table) + [0] * count, pa.int32())
    table = table.take(pa.array([*range(len(table)), *[row] * count])).combine_chunks()
    columns = dict(zip(table.column_names, table.columns, strict=True))
    inner = table.column(outer).combine_chunks() if outer else None
    fields = list(inner.type) if outer else list(table.schema)
    name = [field.name for field in fields if pa.types.is_string(field.type)][-1]
    if outer:
        parts = [values_of(bomb, places) if field.name == name else inner.field(field.name) for field in fields]
        columns[outer] = pa.StructArray.from_arrays(parts, [field.name for field in fields], mask=inner.is_null())
    else:
        columns[name] = values_of(bomb, places)
    leaf = f"{outer}.{name}" if outer else name
    write(path, pa.table(columns), leaf, bomb)


def values_of(bomb, places):
    if bomb == "fixed":
        return pa.array([TEXT.encode()], pa.binary(len(TEXT))).take(places)
    if bomb == "dictionary":
        return pa.DictionaryArray.from_arrays(places, pa.array([TEXT]))
    return pa.array([TEXT]).take(places)


def write(path, table, leaf, bomb):
    import pyarrow.parquet as pq

    how = {} if bomb == "dictionary" else {"use_dictionary": False}
    if bomb == "delta":
        how["column_encoding"] = {leaf: "DELTA_BYTE_ARRAY"}
    with pq.ParquetWriter(path, table.schema, compression="zstd", data_page_size=1 << 30, **how) as writer:
        for _ in range(1 if bomb in ("dictionary", "pages") else GROUPS):
            writer.write_table(table)
    if bomb == "pages":
        group = pq.read_metadata(path).row_group(0)
        columns = [group.column(at) for at in range(group.num_columns)]
        (size_bytes,) = (each.total_uncompressed_size for each in columns if each.path_in_schema == leaf)
        understate(path, size_bytes)
    assert path.stat().st_size < 4 << 20


def understate(path, size_bytes):
    """Change the footer, so that it says that a column has a thousand bytes."""
    data = path.read_bytes()
    at = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    said, other = number(size_bytes), number(1_000)
    padded = bytes(byte | 0x80 for byte in other) + b"\x80" * (len(said) - len(other) - 1) + b"\0"
    assert said in data[at:]
    path.write_bytes(data[:at] + data[at:].replace(said, padded))


def number(value):
    """Return a number in Thrift's compact protocol."""
    value, found = value << 1, b""
    while value > 0x7F:
        value, found = value >> 7, found + bytes([value & 0x7F | 0x80])
    return found + bytes([value])


def run(folder, *lines):
    """Run commands in a process with little memory. Return for each its exit code, its output, and the peak in MiB."""
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        timeout=900,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr[-1500:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]


@pytest.fixture
def places(whole, tmp_path):
    """Return a copy of the lake, and its Parquet files by kind."""
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    return {kind_of(path): path for path in sorted((tmp_path / "lake").rglob("*.parquet"))}


def test_there_is_a_bomb_of_each_kind(places):
    assert places.keys() >= {"events", "checkpoint", "seals", "forgotten"}
    assert (
        set(commands_on_lakes()) >= {"ship", "compact", "verify", "forget", "report", "detect", "prove"} | MORE.keys()
    )


@pytest.mark.timeout(1000)
@pytest.mark.parametrize("bomb", BOMBS)
def test_each_bomb_is_named_with_little_memory(places, tmp_path, bomb):
    lines, names = [], []
    for kind, path in places.items():
        other = tmp_path / "of" / kind
        shutil.copytree(tmp_path / "lake", other / "lake")
        names.append(path.relative_to(tmp_path / "lake"))
        place_bomb(other / "lake" / names[-1], bomb)
        lines.append(f"verify --lake {other / 'lake'}")
    for name, (code, said, peak_mib) in zip(names, run(tmp_path, *lines), strict=True):
        assert code in (1, 2), said
        assert name.name in said, said
        assert peak_mib < PEAK_MIB, name


NAMED = {
    *("event_id", "node", "boot", "seq", "time_us", "kind", "source_file", "shipped_time", "time"),
    *(*SealRow._fields, "record", "digests"),
}
"""Columns that a row must have."""


def repeated(path, count, **values):
    """Yield the first row of a file, with few columns, a million times at a time. Columns may have other values."""
    import pyarrow.parquet as pq

    row = pq.read_table(path, partitioning=None).slice(0, 1)
    row = row.select([name for name in row.column_names if name in NAMED])
    for start in range(0, count, AT_ONCE):
        places = pa.array([0] * AT_ONCE, pa.int32())
        columns = {name: row.column(name).combine_chunks() for name in row.column_names}
        some = {
            name: pa.DictionaryArray.from_arrays(places, column)
            if pa.types.is_string(column.type)
            else column.take(places)
            for name, column in columns.items()
        }
        some |= {name: value(start) for name, value in values.items()}
        yield pa.table(some)


def steps(start):
    """Return whole numbers, of which no two consecutive ones differ by one."""
    return pa.array(range(2 * start, 2 * (start + AT_ONCE), 2), pa.int64())


def always(text):
    return lambda _: pa.DictionaryArray.from_arrays(pa.array([0] * AT_ONCE, pa.int32()), pa.array([text]))


FREE = {
    "rows": (("events", "seals", "forgotten"), lambda path: repeated(path, 24 * AT_ONCE)),
    "numbers": (("events",), lambda path: repeated(path, 8 * AT_ONCE, seq=steps)),
    "gaps": (("events",), lambda path: repeated(path, 4 * AT_ONCE, kind=always("audit_gap"))),
}
"""Values that take almost no bytes in a file: the kinds of files that may have them, and how they are made."""


@pytest.mark.timeout(1000)
@pytest.mark.parametrize("free", FREE)
def test_values_that_take_few_bytes_in_a_file_do_not_fill_the_memory(places, tmp_path, free):
    import pyarrow.parquet as pq

    kinds, parts_of = FREE[free]
    lines, names = [], []
    for kind, path in places.items():
        if kind not in kinds:
            continue
        other = tmp_path / "of" / kind
        shutil.copytree(tmp_path / "lake", other / "lake")
        parts = parts_of(path)
        first = next(parts)
        names.append(path.relative_to(tmp_path / "lake"))
        how = {"use_dictionary": False, "column_encoding": {"seq": "DELTA_BINARY_PACKED"}} if free == "numbers" else {}
        with pq.ParquetWriter(other / "lake" / names[-1], first.schema, compression="zstd", **how) as writer:
            for part in (first, *parts):
                writer.write_table(part, row_group_size=AT_ONCE)
        assert (other / "lake" / names[-1]).stat().st_size < 4 << 20
        lines.append(f"verify --lake {other / 'lake'}")
    for name, (code, said, peak_mib) in zip(names, run(tmp_path, *lines), strict=True):
        assert code in (1, 2), said
        assert name.name in said, said
        assert peak_mib < PEAK_MIB, name


@pytest.mark.timeout(1000)
def test_a_commit_that_takes_many_times_its_size_in_memory_is_named(places, tmp_path):
    """The objects are as short as possible, because short objects take the most memory for their size."""
    log = places["checkpoint"].parent
    commit = log / f"{max(int(path.stem) for path in log.glob('*.json')) + 1:020}.json"
    commit.write_text('{"txn":{}}\n' * (12 << 20))
    commands, named = list(commands_on_lakes()), set()
    lines = [f"{command} audit.toml --lake lake {MORE.get(command, '')}" for command in commands]
    for command, (code, said, peak_mib) in zip(commands, run(tmp_path, *lines), strict=True):
        assert code in CODES, (command, said)
        assert peak_mib < PEAK_MIB, command
        named |= {command} if code and commit.name in said else set()
    assert named >= {"ship", "compact", "verify", "forget", "report", "detect"}


def place_made(path, make):
    path.write_bytes(make())


COMMANDS = list(commands_on_lakes())
DAMAGES = {
    **{f"a bomb: {bomb}": functools.partial(place_bomb, bomb=bomb) for bomb in BOMBS},
    **{name: functools.partial(place_made, make=make) for name, make in MADE.items()},
}


def meet(command, damages, places, tmp_path):
    """Run a command on a lake with each of these damages, numbered, in one kind of file each."""
    lines, paths = [], list(places.values())
    for number, name in damages:
        path = paths[number % len(paths)]
        other = tmp_path / command / str(number)
        shutil.copytree(tmp_path / "lake", other / "lake")
        DAMAGES[name](other / "lake" / path.relative_to(tmp_path / "lake"))
        lines.append(f"{command} audit.toml --lake {other / 'lake'} {MORE.get(command, '')}")
    for (_, name), (code, said, peak_mib) in zip(damages, run(tmp_path, *lines), strict=True):
        assert code in CODES, (name, said)
        assert "usage:" not in said, (name, said)
        assert peak_mib < PEAK_MIB, name


@pytest.mark.timeout(1000)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_fills_the_memory(places, tmp_path, command):
    """The commands share the damages."""
    first, every = COMMANDS.index(command), len(COMMANDS)
    meet(command, list(enumerate(DAMAGES))[first::every], places, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_damage_makes_any_command_fill_the_memory(places, tmp_path, command):
    """Each command meets each damage, and each damage each kind of file."""
    meet(command, list(enumerate(DAMAGES, COMMANDS.index(command))), places, tmp_path)


@pytest.mark.parametrize("kind", ["events", "seals", "forgotten", "checkpoint"])
def test_a_sparse_file_of_a_terabyte_is_named(places, tmp_path, kind):
    with places[kind].open("wb") as file:
        file.truncate(1 << 40)
    ((code, said, _),) = run(tmp_path, "verify audit.toml --lake lake")
    assert code in (1, 2)
    assert places[kind].name in said


PARQUET = {"lake/parquet.py"}
WHOLE = {
    "storage/files.py": "the spool's own file",
    "storage/filesystems.py": "what all others call",
    "spool/folder.py": "segments that the server writes itself",
    "spool/signatures.py": "a key of the configuration",
    "terminal/evidence.py": "files of the command line",
}


def test_one_module_reads_all_files_of_other_programs():
    """There the limits hold for every reader."""
    root = Path(klamm_spark.__file__).parent
    for path in root.rglob("*.py"):
        name = path.relative_to(root).as_posix()
        calls = {
            node.func.attr
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        }
        assert name in PARQUET or not calls & {"ParquetFile", "read_table", "read_metadata"}, name
        assert name in WHOLE or "read_bytes" not in calls, name
