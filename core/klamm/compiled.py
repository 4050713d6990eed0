"""The choice between klamm's compiled modules and their source. It is made before any other module is loaded.

klamm uses the compiled modules if the wheel has them. `KLAMM_PURE=1` chooses the source, which is in every wheel. If
the compiled modules cannot be loaded, klamm also uses the source, with a warning that gives the reason.
"""

import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from typing import Final

VARIABLE: Final = "KLAMM_PURE"
_LIBRARY: Final = "klamm.compiled__mypyc"
_FOLDER: Final = os.path.dirname(os.path.abspath(__file__))
_A_COMPILED_MODULE: Final = os.path.join(_FOLDER, "network", "channel" + EXTENSION_SUFFIXES[0])


def choose() -> bool:
    """Choose the modules, and return True for the compiled ones. The package calls this once, when it is imported."""
    if not os.path.exists(_A_COMPILED_MODULE):
        return False
    if os.environ.get(VARIABLE) == "1":
        sys.meta_path.insert(0, _SourceFinder)
        return False
    try:
        importlib.import_module(_LIBRARY)
    except ImportError as error:
        sys.meta_path.insert(0, _SourceFinder)
        reason = f"klamm runs from its source, which is slower: its compiled build cannot be loaded: {error}"
        warnings.warn(reason, RuntimeWarning, stacklevel=2)
        return False
    return True


class _SourceFinder:
    """Finds the source of modules whose name begins with `klamm`, before other finders."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """Return the spec of a module's source below the folders of its package."""
        if path is None or not name.startswith("klamm"):
            return None
        finders = (FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES)) for folder in path)
        return next((spec for finder in finders if (spec := finder.find_spec(name))), None)


IS_COMPILED: Final = choose()
"""True if the modules that each request runs through are compiled."""
