"""klamm finds the same entry points as `importlib.metadata`."""

import importlib.metadata
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.config import entry_points
from klamm.config.entry_points import find_entry_points, installed_entry_points
from klamm.config.plugin_registry import PluginRegistry

NAMES = st.sampled_from(["klamm", "klamm-doors", "klamm_Doors", "klamm.doors", "other"])
LINES = st.sampled_from(
    [
        "one = pkg.one",
        "two=pkg.two:part.inner",
        "three = pkg:part [extra]",
        "# no = comment",
        "; no = comment",
        "",
        "  ",
    ]
)
SECTIONS = st.lists(
    st.tuples(st.sampled_from(["klamm", "console_scripts", "klamm.more"]), st.lists(LINES, max_size=4)),
    max_size=3,
    unique_by=lambda section: section[0],
)
DISTRIBUTIONS = st.lists(
    st.tuples(NAMES, st.sampled_from(["1.0", "2.0rc1"]), st.sampled_from([".dist-info", ".egg-info"]), SECTIONS),
    max_size=4,
    unique_by=lambda one: one[0].lower().replace("-", "_").replace(".", "_"),
)


def install(folder, name, version, suffix, sections):
    """Write the files that an installer leaves, and one package that no file of the installer names."""
    info = folder / f"{name.replace('-', '_')}-{version}{suffix}"
    info.mkdir(parents=True)
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nName: not this\n"
    (info / ("METADATA" if suffix == ".dist-info" else "PKG-INFO")).write_text(metadata)
    if sections:
        lines = [line for section, entries in sections for line in (f"[{section}]", *dict.fromkeys(entries))]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


def facts(found):
    return [(one.name, one.value, one.dist.name, one.dist.version) for one in found]


def of_importlib(path):
    seen = {}
    for distribution in importlib.metadata.distributions(path=path):
        seen.setdefault(distribution._normalized_name, distribution)
    return facts(one for distribution in seen.values() for one in distribution.entry_points.select(group="klamm"))


@given(first=DISTRIBUTIONS, second=DISTRIBUTIONS)
def test_entry_points_equal_those_of_importlib_metadata(tmp_path_factory, first, second):
    folder = tmp_path_factory.mktemp("path")
    path = [str(folder / "a"), str(folder / "gone"), str(folder / "b")]
    for part, distributions in (("a", first), ("b", second)):
        for distribution in distributions:
            install(folder / part, *distribution)
    assert facts(find_entry_points("klamm", path)) == of_importlib(path)


def test_klamms_own_entry_points_are_found():
    assert facts(installed_entry_points("klamm")) == facts(importlib.metadata.entry_points(group="klamm"))


def test_an_attribute_of_a_module_is_loaded(tmp_path, monkeypatch):
    (tmp_path / "made_up_door.py").write_text("class Door:\n    class Inner:\n        name = 'inner'\n")
    entries = ["door = made_up_door:Door.Inner [extra]", "module = made_up_door", "gone = made_up_door:Gone"]
    install(tmp_path, "doors", "1.0", ".dist-info", [("klamm", entries)])
    monkeypatch.syspath_prepend(str(tmp_path))
    door, module, gone = find_entry_points("klamm", [str(tmp_path)])
    assert door.load().name == "inner"
    assert module.load().Door.Inner is door.load()
    with pytest.raises(AttributeError):
        gone.load()


def test_a_third_party_plugin_is_found_and_can_be_left_out(tmp_path, monkeypatch):
    hook = "@hookimpl\ndef klamm_connection_gates():\n    yield Provider('d', 'a:b')\n"
    (tmp_path / "made_up_gate.py").write_text(f"from klamm import Provider, hookimpl\n\n{hook}")
    install(tmp_path, "klamm-gate", "3.1", ".dist-info", [("klamm", ["gate = made_up_gate"])])
    monkeypatch.syspath_prepend(str(tmp_path))
    sources = {found.source for found in PluginRegistry(environment={}).all()}
    assert ("gate", "klamm-gate", "3.1") in {(one.entry_point, one.distribution, one.version) for one in sources}
    for registry in (PluginRegistry(["gate"], {}), PluginRegistry(environment={"KLAMM_LOAD_PLUGINS": ""})):
        assert "gate" in registry.blocked
        assert "klamm-gate" not in {found.source.distribution for found in registry.all()}


def test_importlib_metadata_finds_entry_points_in_archives_and_other_finders(tmp_path, monkeypatch):
    class Finder:
        @staticmethod
        def find_distributions(context):
            return [importlib.metadata.PathDistribution(tmp_path / "hidden" / "made_up-1.0.dist-info")]

    install(tmp_path / "hidden", "made-up", "1.0", ".dist-info", [("klamm", ["made_up = made_up"])])
    assert "made-up" not in {one.dist.name for one in installed_entry_points("klamm")}
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    assert "made-up" in {one.dist.name for one in installed_entry_points("klamm")}
    archive = Path(tmp_path / "packages.zip")
    archive.write_bytes(b"")
    assert not entry_points._is_plain([str(archive)], [])
    assert entry_points._is_plain([str(tmp_path), ""], [])
