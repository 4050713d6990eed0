"""The time from an empty environment to a first test that produces: `python -m bench.first_produce [PYTHON ...]`.

A folder stands in for a package index. It holds the wheels of klamm, of pytest and of their requirements; pip fills it
from its own index before the time runs. The time runs from `python -m venv` until pytest has passed the first test of
docs/testing.md. Meanwhile nothing uses the checkout or the network. With KLAMM_COMPILE=1 klamm's wheel is compiled.
Without a PYTHON the one that runs this module is measured.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet")


@dataclass(slots=True, frozen=True)
class Taken:
    """The times in which one Python finished each step, and the processor time of all steps."""

    environment_s: float
    installed_s: float
    passed_s: float
    processor_s: float


def first_test() -> str:
    """Return the first program of docs/testing.md."""
    (block, *_) = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "testing.md").read_text("utf-8"), re.M | re.S)
    return str(block)


def run(*command: str | Path, cwd: Path) -> None:
    """Run a command that finds nothing of this checkout. Raises RuntimeError with the command's output if it fails."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VENV", "VIRTUAL_ENV")
    }
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=540)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")


def build_wheel(python: str | Path, folder: Path) -> Path:
    """Return klamm's wheel, built for a Python that has pip."""
    run(python, *PIP, "wheel", "--no-deps", "--wheel-dir", folder, ROOT, cwd=folder)
    (wheel,) = folder.glob("klamm-*.whl")
    return wheel


def fill_index(python: str | Path, folder: Path, wheel: Path | None, *others: str) -> tuple[Path, Path]:
    """Return a Python that has pip, and a folder with the wheels of klamm, of `others`, and of their requirements."""
    run(python, "-m", "venv", "prepared", cwd=folder)
    with_pip, index = folder / "prepared" / "bin" / "python", folder / "index"
    index.mkdir()
    wanted = wheel or build_wheel(with_pip, folder)
    run(with_pip, *PIP, "download", "--only-binary=:all:", "--dest", index, wanted, *others, cwd=folder)
    return with_pip, index


def install(python: Path, index: Path, *packages: str) -> None:
    """Install packages from a folder of wheels."""
    run(python, *PIP, "install", "--no-index", "--find-links", index, *packages, cwd=index)


def timed(
    python: str | Path, work: Path, index: Path, packages: tuple[str, ...], last: Callable[[Path], None]
) -> Taken:
    """Measure a new environment, the installation of packages in it, and `last`, which gets the environment's `bin`."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    run(python, "-m", "venv", "venv", cwd=work)
    environment_s = time.perf_counter() - began
    programs = work / "venv" / "bin"
    install(programs / "python", index, *packages)
    installed_s = time.perf_counter() - began
    last(programs)
    passed_s = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Taken(environment_s, installed_s, passed_s, processor_s)


def measure(python: str | Path, folder: Path, wheel: Path | None = None) -> Taken:
    """Measure in an empty folder, with klamm's `wheel`, or with one that this function builds. Raises RuntimeError."""
    _, index = fill_index(python, folder, wheel, "pytest")
    work = folder / "work"
    work.mkdir()

    def test(programs: Path) -> None:
        (work / "test_first.py").write_text(first_test(), encoding="utf-8")
        run(programs / "python", "-m", "pytest", "-q", "test_first.py", cwd=work)

    return timed(python, work, index, ("klamm", "pytest"), test)


def print_each(names: Iterable[str], measure: Callable[[str, Path], Taken]) -> None:
    """Print a line for each name, measured in an empty folder."""
    for name in names:
        with tempfile.TemporaryDirectory(prefix="klamm-bench-") as folder:
            taken = measure(name, Path(folder))
        print(
            f"{name}: environment after {taken.environment_s:.1f} s, installed after {taken.installed_s:.1f} s,"
            f" passed after {taken.passed_s:.1f} s; {taken.processor_s:.1f} s of processor time",
            flush=True,
        )


if __name__ == "__main__":
    print_each(sys.argv[1:] or [sys.executable], measure)
