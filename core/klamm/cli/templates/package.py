"""The files that all packages of `klamm plugins new` have."""

from __future__ import annotations

from typing import Final, NamedTuple


class Template(NamedTuple):
    """One kind of part: its hook, a line about it, its module, its tests, and the TOML that uses it."""

    hook: str
    summary: str
    part: str
    tests: str
    toml: str


PROJECT: Final = """\
[build-system]
requires = ["hatchling>=1.25"]
build-backend = "hatchling.build"

[project]
name = "NAME"
version = "0.1.0"
description = "DESCRIPTION"
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["klamm>=MINIMUM"]

[project.optional-dependencies]
dev = ["pytest"]

[project.entry-points.klamm]
PART = "MODULE"

[tool.hatch.build.targets.wheel]
packages = ["MODULE"]

[tool.pytest.ini_options]
pythonpath = ["."]
"""

README: Final = """\
# NAME

DESCRIPTION.

"""

WORKFLOW: Final = """\
# Runs the tests on each push. Without GitHub: the two commands are all that another CI needs.
name: tests
on: [push, pull_request]

jobs:
  tests:
    runs-on: ubuntu-latest
    strategy:
      matrix:
        python: ["3.11", "3.12", "3.13", "3.14"]
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: ${{ matrix.python }}
      - run: python -m pip install -e '.[dev]'
      - run: python -m pytest
"""

INIT: Final = '''\
"""NAME: SUMMARY.

klamm imports this module at every start, so keep only hooks in it.
"""

from collections.abc import Iterator

from klamm import Provider, hookimpl

PLUGIN_API = APIVERSION  # the hooks and contracts that it was made for: another klamm refuses to load it
'''

HOOK: Final = """

@hookimpl
def HOOK() -> Iterator[Provider]:
    yield Provider(
        "PART",
        factory="MODULE.FILE:CLASS",SETTINGS
        summary="SUMMARY",
    )
"""
