"""What `KLAMM_COMPILE=1` builds does what the same source does in an interpreter."""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm import KafkaError
from klamm.wire.records import HEADER_BYTES, Record, encode_batch
from tests.unit.log.test_record_check import RECORDS

ROOT = Path(__file__).parents[2]
NAME = "klamm_broker/log/record_walk"

SOURCE = ROOT / "plugins" / "apis" / f"{NAME}.py"

Walk = Callable[[bytes, int], int]


def build_wheel(folder: Path, **environment: str) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def compiled_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of a compiled wheel: those that `scripts/test` has built, or of one built now."""
    if built := os.environ.get("KLAMM_COMPILED"):
        return Path(built)
    if shutil.which("gcc") is None or not Path(sysconfig.get_paths()["include"], "Python.h").exists():
        assert "CI" not in os.environ, "the test needs gcc and Python.h"
        pytest.skip("needs gcc and Python.h")
    folder = tmp_path_factory.mktemp("compiled")
    with zipfile.ZipFile(build_wheel(folder, KLAMM_COMPILE="1")) as wheel:
        wheel.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def compiled(compiled_folder: Path) -> ModuleType:
    """The walk over records of a compiled wheel, beside the one that this process has."""
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


# Also where klamm itself is compiled.
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


def test_a_build_without_the_variable_is_python_alone(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path, KLAMM_COMPILE="0")
    assert wheel.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert f"{NAME}.py" in names
    assert not [name for name in names if name.endswith(".so")]


def test_the_module_knows_whether_it_was_compiled(compiled: ModuleType) -> None:
    assert compiled.IS_COMPILED
    assert not in_python.IS_COMPILED


@given(records=RECORDS, more=st.sampled_from([-1, 0, 0, 1]), rest=st.binary(max_size=2))
def test_sound_records_and_counts_that_lie(compiled: ModuleType, records: list[Record], more: int, rest: bytes) -> None:
    body = bytes(encode_batch(records)[HEADER_BYTES:])
    found = same_outcome(compiled, body + rest, len(records) + more)
    if not more:
        assert found == len(body)


@given(records=RECORDS)
def test_every_byte_changed(compiled: ModuleType, records: list[Record]) -> None:
    body = bytearray(encode_batch(records[:3])[HEADER_BYTES:])
    for at, byte in enumerate(body):
        for changed in (byte ^ 0x80, byte ^ 0x01, 0, 0x7F, 0xFF):
            body[at] = changed
            same_outcome(compiled, bytes(body), len(records[:3]))
        body[at] = byte


def test_bytes_that_are_no_records(compiled: ModuleType) -> None:
    """Small numbers and long ones, as many of them lead on to further bytes."""
    drawn = random.Random(1)
    bytes_in_use = bytes([0, 0, 0, 1, 2, 4, 12, 14, 16, 0x7F, 0x80, 0xFF])
    found = set()
    for _ in range(20_000):
        body = bytes(drawn.choices(bytes_in_use, k=drawn.randrange(40)))
        found.add(str(same_outcome(compiled, body, drawn.randrange(4))))
    assert len(found) > 12
