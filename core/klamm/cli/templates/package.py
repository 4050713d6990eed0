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
description = "KIND for klamm: SUMMARY"
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["klamm"]

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

KIND for klamm: SUMMARY.

"""

INIT: Final = '''\
"""NAME: SUMMARY.

klamm imports this module at every start, so keep only hooks in it.
"""

from collections.abc import Iterator

from klamm import Provider, hookimpl


@hookimpl
def HOOK() -> Iterator[Provider]:
    yield Provider(
        "PART",
        factory="MODULE.part:CLASS",SETTINGS
        summary="SUMMARY",
    )
'''
