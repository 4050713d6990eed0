"""A build hook of hatchling: `KLAMM_COMPILE=1 pip install .` compiles what is computed for each record.

mypyc makes a module of C of a typed module of Python, unchanged. Without the variable nothing is compiled: klamm is
Python alone, and behaves the same. An editable installation gets the compiled module beside its source, before which it
goes until it is deleted. The plugin `hatch-mypyc` takes one folder of sources; klamm has one for each kind of plugin.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VARIABLE: Final = "KLAMM_COMPILE"
MODULES: Final = ("plugins/apis/klamm_broker/log/record_walk.py",)

# In a process of its own, as mypyc ends the process where it finds an error.
_PROGRAM: Final = """
import sys
from mypyc.build import mypycify
from setuptools import Distribution
module, folder = sys.argv[1:]
options = {"target_dir": folder, "opt_level": "3", "debug_level": "0"}
# Types of other packages do not matter here: what is not installed where klamm is built is not looked for.
extensions = mypycify(["--follow-imports=silent", "--ignore-missing-imports", module], **options)
command = Distribution({"name": "klamm", "ext_modules": extensions}).get_command_obj("build_ext")
command.build_lib = command.build_temp = folder
command.ensure_finalized()
command.run()
"""


class CompileHook(BuildHookInterface[Any]):
    """Takes the compiled modules into the wheel where `KLAMM_COMPILE` is 1."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """What a build needs beside hatchling."""
        return ["mypy[mypyc]>=1.14"] if _is_wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, before the files of the wheel are collected. Raises RuntimeError with what mypyc reports."""
        if not _is_wanted():
            return
        folder = TemporaryDirectory(prefix="klamm-compile-")
        self._folder = folder
        build_data.update(pure_python=False, infer_tag=True)
        for module in MODULES:
            built = Path(folder.name, Path(module).stem)
            for compiled in compile_module(Path(self.root), module, built):
                if version == "editable":
                    shutil.copy(compiled, Path(self.root, module).parent)
                else:
                    build_data["force_include"][str(compiled)] = str(compiled.relative_to(built))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Called once the wheel is written."""
        if _is_wanted():
            self._folder.cleanup()


def compile_module(root: Path, module: str, folder: Path) -> list[Path]:
    """The compiled module and what it imports, below a folder that is made, as they are below that of the packages.

    Raises RuntimeError with what mypyc or the C compiler reports.
    """
    folder.mkdir()
    command = [sys.executable, "-c", _PROGRAM, module, str(folder)]
    done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    found = sorted(folder.rglob("*.so"))
    if done.returncode or not found:
        raise RuntimeError(f"{module} cannot be compiled: {done.stdout}")
    return found


def _is_wanted() -> bool:
    return os.environ.get(VARIABLE) == "1"
