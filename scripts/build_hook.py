"""A build hook of hatchling: writes the messages that git does not keep, and compiles modules if `KLAMM_COMPILE` is 1.

`KLAMM_COMPILE=1 pip install .` compiles the code that runs for each Produce and each record: mypyc turns typed modules
of Python, unchanged, into modules of C. Without the variable, klamm is Python alone, and behaves the same. An editable
installation gets each compiled module beside its source. Python imports the compiled module until it is deleted. The
plugin `hatch-mypyc` is not used, because it takes one folder of sources, and klamm has many.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VARIABLE: Final = "KLAMM_COMPILE"
_PACKAGE_FOLDERS: Final = ("core", "plugins/apis")
MODULES: Final = (
    "core/klamm/network/channel.py",
    "core/klamm/network/lifecycle.py",
    "core/klamm/network/pipelined.py",
    "core/klamm/network/receive.py",
    "core/klamm/network/refused_channels.py",
    "core/klamm/network/selector.py",
    "core/klamm/network/send.py",
    "core/klamm/network/watched_channels.py",
    "core/klamm/requests/execution.py",
    "core/klamm/requests/ledger.py",
    "core/klamm/requests/pending.py",
    "core/klamm/requests/pipeline.py",
    "core/klamm/wire/batch_headers.py",
    "core/klamm/wire/compression.py",
    "core/klamm/wire/error_counts.py",
    "core/klamm/wire/headers.py",
    "core/klamm/wire/scratch.py",
    "plugins/apis/klamm_broker/handlers/produce_appends.py",
    "plugins/apis/klamm_broker/log/files.py",
    "plugins/apis/klamm_broker/log/indexes.py",
    "plugins/apis/klamm_broker/log/partition_log.py",
    "plugins/apis/klamm_broker/log/reader.py",
    "plugins/apis/klamm_broker/log/record_check.py",
    "plugins/apis/klamm_broker/log/record_walk.py",
    "plugins/apis/klamm_broker/log/segment.py",
    "plugins/apis/klamm_broker/log/segmented_log.py",
)
"""The compiled modules. A module with a class that plugins subclass must not be here: this needs a Python class."""
GROUP: Final = "klamm.compiled"
"""The name of the library `klamm/compiled__mypyc`. All modules are in it, so their calls skip the interpreter."""

# This runs in a process of its own, because mypyc ends the process if it finds an error.
_PROGRAM: Final = """
import sys
from mypyc.build import mypycify
from setuptools import Distribution
folder, group, *modules = sys.argv[1:]
options = {"target_dir": folder, "group_name": group, "opt_level": "3", "debug_level": "0"}
# An isolated build has no other packages: what depends on their types is not checked here.
lenient = ["--follow-imports=silent", "--ignore-missing-imports", "--no-warn-return-any", "--no-warn-unused-ignores"]
extensions = mypycify([*lenient, *modules], **options)
command = Distribution({"name": "klamm", "ext_modules": extensions}).get_command_obj("build_ext")
command.build_lib = command.build_temp = folder
command.ensure_finalized()
command.run()
"""


class BuildHook(BuildHookInterface[Any]):
    """Adds generated modules to a wheel, and compiled modules if `KLAMM_COMPILE` is 1. hatchling calls it."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Return the packages that a build needs in addition to hatchling."""
        return ["mypy[mypyc]>=2.4"] if _is_wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write and compile modules, before the files of the wheel are collected.

        Raises RuntimeError with the output of mypyc.
        """
        sys.path.insert(0, self.root)
        try:
            from tools.generate_messages import write_between_brokers
        finally:
            sys.path.remove(self.root)
        write_between_brokers(Path(self.root))
        if not _is_wanted():
            return
        folder = TemporaryDirectory(prefix="klamm-compile-")
        self._folder = folder
        build_data.update(pure_python=False, infer_tag=True)
        root, built = Path(self.root), Path(folder.name)
        for compiled in compile_modules(root, built):
            place = compiled.relative_to(built)
            if version == "editable":
                shutil.copy(compiled, _source_folder(root, place))
            else:
                build_data["force_include"][str(compiled)] = str(place)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary folder after the wheel is written."""
        if _is_wanted():
            self._folder.cleanup()


def compile_modules(root: Path, folder: Path) -> list[Path]:
    """Compile the modules into `folder`, and return their paths and that of their library.

    Raises RuntimeError with the output of mypyc or the C compiler.
    """
    command = [sys.executable, "-c", _PROGRAM, str(folder), GROUP, *MODULES]
    done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    found = sorted(path for path in folder.rglob("*") if path.name.endswith(tuple(EXTENSION_SUFFIXES)))
    if done.returncode or not found:
        raise RuntimeError(f"klamm cannot be compiled: {done.stdout}")
    return found


def _source_folder(root: Path, place: Path) -> Path:
    """Return the folder of the source for the compiled module at `place` in a wheel."""
    (folder,) = {root / source for source in _PACKAGE_FOLDERS if (root / source / place.parent).is_dir()}
    return folder / place.parent


def _is_wanted() -> bool:
    return os.environ.get(VARIABLE) == "1"
