"""Tests of the Kubernetes manifests: their configuration is valid, and their probes request existing pages."""

import re
import textwrap
from pathlib import Path

from klamm.config.planner import load_plan
from klamm.config.plugin_registry import PluginRegistry
from klamm.testing import EmbeddedServer

ROOT = Path(__file__).parents[3]
MANIFESTS = (ROOT / "examples" / "production" / "kubernetes" / "klamm.yaml").read_text(encoding="utf-8")


def test_the_configuration_has_the_ports_of_the_container(tmp_path):
    (configuration,) = re.findall(r"^  klamm.toml: \|\n((?:    .*\n|\n)+)", MANIFESTS, re.MULTILINE)
    file = tmp_path / "klamm.toml"
    file.write_text(textwrap.dedent(configuration))
    plan = load_plan(file, PluginRegistry())
    (listener,) = plan.listeners
    (exporter,) = plan.extensions
    bound = {str(listener.bind[1]), exporter.settings.bind.rpartition(":")[2]}
    assert set(re.findall(r"containerPort: (\d+)", MANIFESTS)) == bound
    assert str(plan.server.data_dir) in re.findall(r"mountPath: (\S+)", MANIFESTS)


def test_the_probes_request_existing_pages():
    exporter = ["server.extensions=prometheus", "prometheus.bind=127.0.0.1:0", "listeners.default.api_set=echo"]
    with EmbeddedServer(exporter) as server:
        pages = server.server.extensions[0]._http.pages
        probes = dict(re.findall(r"(\w+)Probe:\n\s+httpGet:\n\s+path: (\S+)", MANIFESTS))
    assert probes == {"startup": "/started", "readiness": "/ready", "liveness": "/live"}
    assert set(probes.values()) <= pages.keys()


def test_the_page_says_of_all_resources_that_they_are_valid():
    page = " ".join((ROOT / "docs" / "production.md").read_text(encoding="utf-8").split())
    count = len(re.findall(r"^kind:", MANIFESTS, re.MULTILINE))
    assert f"{count} resources found in 1 file - Valid: {count}, Invalid: 0" in page


def test_it_runs_as_the_user_of_the_container():
    container = (ROOT / "containers" / "Containerfile").read_text(encoding="utf-8")
    (user,) = re.findall(r"^USER (\d+):", container, re.MULTILINE)
    assert f"runAsUser: {user}" in MANIFESTS
    assert re.search(r"readOnlyRootFilesystem: true", MANIFESTS)
