"""Compares the compiled klamm (`KLAMM_COMPILE=1`) with the same source in an interpreter."""

from __future__ import annotations

import importlib.util
import os
import random
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm import KafkaError
from klamm.wire.records import HEADER_BYTES, Record, encode_batch
from tests.packaging.test_wheels import build_wheel, consume, install, produce, run, serving
from tests.unit.log.test_record_check import RECORDS

ROOT = Path(__file__).parents[2]
NAME = "klamm_broker/log/record_walk"

SOURCE = ROOT / "plugins" / "apis" / f"{NAME}.py"

Walk = Callable[[bytes, int], int]


@pytest.fixture(scope="module")
def compiled_folder(compiled_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the packages of the compiled wheel."""
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(compiled_wheel) as wheel:
        wheel.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def compiled(compiled_folder: Path) -> ModuleType:
    """Return the module `record_walk` of the compiled wheel. The module of this process stays loaded too."""
    (module,), (library,) = compiled_folder.glob(f"{NAME}.*.so"), compiled_folder.glob("klamm/compiled__mypyc.*.so")
    load("klamm.compiled__mypyc", library)
    return load(NAME.replace("/", "."), module, keep=False)


def load(name: str, path: Path, *, keep: bool = True) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if keep:
        sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


# The comparison is also possible if klamm itself is compiled.
in_python = load("record_walk_in_python", SOURCE, keep=False)


def outcome(walk: Walk, body: bytes, count: int) -> object:
    try:
        return walk(body, count)
    except IndexError:
        return IndexError
    except KafkaError as error:
        return error.error_code, error.message


def same_outcome(compiled: ModuleType, body: bytes, count: int) -> object:
    found = outcome(compiled.walk, body, count)
    assert found == outcome(in_python.walk, body, count)
    return found


def test_a_build_without_the_variable_is_pure_python(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path, KLAMM_COMPILE="0")
    assert wheel.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert f"{NAME}.py" in names
    assert not [name for name in names if name.endswith(".so")]


@pytest.mark.timeout(300)
def test_a_compiled_wheel_serves_from_an_empty_environment(compiled_wheel: Path, tmp_path: Path) -> None:
    programs = install(tmp_path / "venv", compiled_wheel)
    where = run(programs / "python", "-c", "import klamm.wire.scratch as module; print(module.__file__)")
    assert where.endswith(".so\n")
    with serving([programs / "klamm", "serve"], tmp_path, "--bind", "127.0.0.1:0") as listeners:
        produce(listeners["default"], "greetings", ["hello", "world"])
        assert consume(listeners["default"], "greetings", 2) == ["hello", "world"]


def loaded(folder: Path, **environment: str) -> tuple[list[bool], str]:
    """Return for a module of the server and one of the broker if it is compiled, and the text on stderr."""
    program = (
        "import klamm.network.channel as one, klamm_broker.log.record_walk as other;"
        "from klamm.compiled import IS_COMPILED;"
        "print(*(int(not module.__file__.endswith('.py')) for module in (one, other)), int(IS_COMPILED))"
    )
    command = [sys.executable, "-P", "-c", program]
    environment = os.environ | {"PYTHONPATH": str(folder)} | environment
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True, timeout=60)
    return [bool(int(one)) for one in done.stdout.split()], done.stderr


def test_a_variable_chooses_the_source(compiled_folder: Path) -> None:
    assert loaded(compiled_folder) == ([True] * 3, "")
    assert loaded(compiled_folder, KLAMM_PURE="1") == ([False] * 3, "")


@pytest.mark.parametrize("damage", [lambda library: library.write_bytes(b""), lambda library: library.unlink()])
def test_a_build_that_cannot_be_loaded_prints_one_sentence(
    compiled_folder: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    folder = shutil.copytree(compiled_folder, tmp_path / "damaged")
    (library,) = folder.glob("klamm/compiled__mypyc.*.so")
    damage(library)
    compiled, said = loaded(folder)
    assert compiled == [False] * 3
    assert said.count("klamm runs from its source, which is slower: its compiled build cannot be loaded: ") == 1
    with serving([sys.executable, "-m", "klamm", "serve"], folder, "--bind", "127.0.0.1:0") as listeners:
        produce(listeners["default"], "greetings", ["hello"])
        assert consume(listeners["default"], "greetings", 1) == ["hello"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="only a clone can be cloned")
def test_the_readme_compiles_klamm_in_an_empty_environment(tmp_path: Path) -> None:
    (command,) = set(re.findall(r"`KLAMM_COMPILE=1 (pip install \.)`", (ROOT / "README.md").read_text()))
    run("git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", tmp_path / "klamm")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    run("env", "KLAMM_COMPILE=1", python, "-m", *command.replace(" .", f" {tmp_path / 'klamm'}").split())
    where = run(python, "-c", "import klamm.wire.scratch as module; print(module.__file__)")
    assert where.endswith(".so\n")


@given(records=RECORDS, more=st.sampled_from([-1, 0, 0, 1]), rest=st.binary(max_size=2))
def test_both_walks_agree_on_valid_records_and_wrong_counts(
    compiled: ModuleType, records: list[Record], more: int, rest: bytes
) -> None:
    body = bytes(encode_batch(records)[HEADER_BYTES:])
    found = same_outcome(compiled, body + rest, len(records) + more)
    if not more:
        assert found == len(body)


@given(records=RECORDS)
def test_both_walks_agree_if_any_byte_is_changed(compiled: ModuleType, records: list[Record]) -> None:
    body = bytearray(encode_batch(records[:3])[HEADER_BYTES:])
    for at, byte in enumerate(body):
        for changed in (byte ^ 0x80, byte ^ 0x01, 0, 0x7F, 0xFF):
            body[at] = changed
            same_outcome(compiled, bytes(body), len(records[:3]))
        body[at] = byte


def test_both_walks_agree_on_bytes_that_are_no_records(compiled: ModuleType) -> None:
    """Numbers are small or have several bytes, because many of them lead to further bytes."""
    drawn = random.Random(1)
    bytes_in_use = bytes([0, 0, 0, 1, 2, 4, 12, 14, 16, 0x7F, 0x80, 0xFF])
    found = set()
    for _ in range(20_000):
        body = bytes(drawn.choices(bytes_in_use, k=drawn.randrange(40)))
        found.add(str(same_outcome(compiled, body, drawn.randrange(4))))
    assert len(found) > 12
