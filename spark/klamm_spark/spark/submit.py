"""`klamm audit submit`: prints the `spark-submit` line that ships from a cluster, and writes the archive for it.

The machines of the cluster need Python of the same minor version with PyArrow, DuckDB and cramjam. The driver's machine
also needs deltalake and cryptography. All of them must reach spool and lake under the same paths. The archive has klamm
itself in pure Python, and two small packages that it imports.
"""

from __future__ import annotations

import importlib.util
import shlex
import subprocess
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from klamm_spark.settings.spark import NO_SPARK, Pipeline
from klamm_spark.spark.session import SparkUnavailableError, require_pyspark, require_reachable, spark_conf

PACKED: Final = ("klamm", "klamm_spark", "pluggy", "tomli")
_LEFT_OUT: Final = frozenset({"__pycache__"})
_SUFFIXES: Final = frozenset({".py", ".json", ".properties"})


def run(
    pipeline: Pipeline,
    shipping: Sequence[str],
    *,
    archive: Path,
    python: str,
    execute: bool,
    say: Callable[[str], None],
) -> int:
    """Write the archive, and print the line or run it. Return the exit code. `shipping` are the arguments of `ship`.

    Raises SparkUnavailableError if there is no master or no PySpark; with `execute`, also if the master does not
    answer.
    """
    if pipeline.settings.master == NO_SPARK:
        raise SparkUnavailableError("which cluster? Give its --master, e.g. spark://HOST:7077")
    require_pyspark()
    pack(archive)
    command = line(pipeline, shipping, archive=archive, python=python)
    if not execute:
        print(shlex.join(command))
        return 0
    require_reachable(pipeline.settings.master)
    say(f"running {shlex.join(command)}")
    return subprocess.run(command, check=False).returncode


def line(pipeline: Pipeline, shipping: Sequence[str], *, archive: Path, python: str) -> list[str]:
    """Return the line as a list of arguments. It begins with the `spark-submit` of the installed PySpark."""
    settings = pipeline.settings
    conf = spark_conf(settings) | {"spark.pyspark.python": python, "spark.pyspark.driver.python": python}
    program = _folder_of("pyspark") / "bin" / "spark-submit"
    command = [str(program), "--master", settings.master, "--name", "klamm audit ship", "--py-files", str(archive)]
    for key, value in sorted(conf.items()):
        command += ["--conf", f"{key}={value}"]
    return [*command, str(Path(__file__).parents[1] / "__main__.py"), "ship", *shipping, "--master", settings.master]


def pack(archive: Path) -> None:
    """Write the zip file from which Python imports klamm."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for package in PACKED:
            folder = _folder_of(package)
            for path in sorted(folder.rglob("*")):
                if path.suffix in _SUFFIXES and _LEFT_OUT.isdisjoint(path.parts):
                    file.write(path, str(path.relative_to(folder.parent)))


def _folder_of(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SparkUnavailableError(f"the package {package} is not installed")
    return Path(spec.submodule_search_locations[0])
