"""Every dependency of klamm has a free licence, and the bill of materials of a release names it."""

from __future__ import annotations

import json
import re
import venv
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.packaging.test_wheels import ROOT, Distributions, install, run

FREE = {
    *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0", "MIT-CMU", "MPL-2.0"),
    *("LGPL-2.1-only", "LGPL-2.1-or-later", "PSF-2.0", "Unlicense", "Zlib"),
    "3-Clause BSD License",
}
"""Licences in metadata that count as free: identifiers of SPDX, and one text."""
READ = {"cedarpy": "Apache-2.0", "cefevent": "MIT"}
"""The licences of packages whose metadata name none. They are known from the packages' files LICENSE."""
APPROVED = "License :: OSI Approved"


def extras() -> set[str]:
    """Return klamm's own extras."""
    return set(distribution("klamm").metadata.get_all("Provides-Extra") or [])


def dependencies(chosen: set[str]) -> dict[str, Distribution]:
    """Return the installed dependencies of klamm with these extras, also indirect ones."""
    found: dict[str, Distribution] = {}
    left = [("klamm", chosen)]
    while left:
        name, wanted = left.pop()
        for one in requirements(name, wanted):
            required = canonicalize_name(one.name)
            if required in found:
                continue
            try:
                found[required] = distribution(required)
            except PackageNotFoundError:
                continue
            left.append((required, one.extras))
    return found


def requirements(name: str, chosen: set[str]) -> Iterator[Requirement]:
    """Yield the requirements of a distribution on this system."""
    for text in distribution(name).requires or ():
        one = Requirement(text)
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in {"", *chosen}):
            yield one


def is_free(name: str, metadata: dict[str, list[str]]) -> bool:
    """Return True if all licences that the metadata of a package names are free."""
    (expression,) = metadata.get("License-Expression", [""])
    if expression:
        return set(re.findall(r"[\w.+-]+", expression)) - {"AND", "OR"} <= FREE
    classifiers = [each for each in metadata.get("Classifier", []) if each.startswith("License ::")]
    if any(each.startswith(APPROVED) for each in classifiers):
        return True
    (text,) = metadata.get("License", [""])
    return not classifiers and (text in FREE or READ.get(name) in FREE)


def metadata_of(found: Distribution) -> dict[str, list[str]]:
    return {key: found.metadata.get_all(key) or [] for key in found.metadata}


def test_every_dependency_has_a_free_licence() -> None:
    found = dependencies(extras())
    required = {canonicalize_name(one.name) for one in requirements("klamm", set())}
    assert required <= found.keys(), "the licences of what klamm cannot do without are looked at"
    assert {name for name, one in found.items() if not is_free(name, metadata_of(one))} == set()


@pytest.mark.parametrize(
    ("free", "metadata"),
    [
        (True, {"License-Expression": ["(MIT AND BSD-3-Clause) OR Apache-2.0"]}),
        (True, {"License": ["ISC"]}),
        (True, {"Classifier": [f"{APPROVED} :: MIT License"], "License": ["a long text"]}),
        (False, {"License-Expression": ["MIT AND SSPL-1.0"]}),
        (False, {"License-Expression": ["BUSL-1.1"], "Classifier": [f"{APPROVED} :: MIT License"]}),
        (False, {"Classifier": ["License :: Other/Proprietary License"], "License": ["MIT"]}),
        (False, {"License": ["free for small companies"]}),
        (False, {}),
    ],
)
def test_is_free_recognizes_free_licences(free: bool, metadata: dict[str, list[str]]) -> None:
    assert is_free("some-package", metadata) is free


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_bill_of_materials_names_each_dependency_with_its_licence(
    distributions: Distributions, tmp_path: Path
) -> None:
    """The bill is made with the command of RELEASING.md."""
    (command,) = re.findall(r"^(cyclonedx-py .*)$", (ROOT / "RELEASING.md").read_text(), re.M)
    programs = install(tmp_path / "installed", distributions.wheel)
    venv.create(tmp_path / "tools", with_pip=True)
    run(tmp_path / "tools" / "bin" / "python", "-m", "pip", "--quiet", "install", "cyclonedx-bom")
    bill = tmp_path / "klamm.cdx.json"
    wanted = command.replace("installed/bin", str(programs)).replace("klamm.cdx.json", str(bill))
    run(tmp_path / "tools" / "bin" / "cyclonedx-py", *wanted.split()[1:])
    components = {canonicalize_name(one["name"]): one for one in json.loads(bill.read_text())["components"]}
    assert {"klamm", *dependencies(set())} <= components.keys()
    assert {name for name, one in components.items() if not one.get("licenses")} == set()
