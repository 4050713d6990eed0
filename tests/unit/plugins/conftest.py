"""Fixtures that make entry points without installed packages."""

import importlib.metadata
import sys
import types

import pytest


class Distribution(importlib.metadata.Distribution):
    """A distribution with all that an entry point needs: a name and a version."""

    def __init__(self, name, version="1.0"):
        self._text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"

    def read_text(self, filename):
        return self._text if filename == "METADATA" else None

    def locate_file(self, path):
        raise FileNotFoundError(path)


@pytest.fixture
def install(monkeypatch):
    """Return `install(name, distribution, **hooks)`, which makes an entry point of a module with these hooks."""

    def install_one(name, distribution, **hooks):
        module_name = f"made_up_{distribution.replace('-', '_')}_{name}"
        if hooks:
            module = types.ModuleType(module_name)
            for hook, implementation in hooks.items():
                setattr(module, hook, implementation)
            monkeypatch.setitem(sys.modules, module_name, module)
        entry_point = importlib.metadata.EntryPoint(name, module_name, "klamm")
        vars(entry_point)["dist"] = Distribution(distribution)
        return entry_point

    return install_one
