"""Tests of MBeans in Prometheus: names, patterns, labels, both formats, dashboard and alerts, and `klamm top`."""

import io
import json
import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from klamm.config.planner import load_plan
from klamm.config.plugin_registry import PluginRegistry
from klamm.config.problems import ConfigError
from klamm.metrics import Histogram, MetricsRegistry
from klamm.server.server import ServerServices
from klamm.testing import EmbeddedServer
from klamm_metrics import files, top
from klamm_metrics.collector import RegistryCollector, exposed_name
from klamm_metrics.running_server import find
from klamm_metrics.snapshot import Difference, Snapshot
from tests.unit.metrics.all_metrics import exposed_names, registered, secure_families


@pytest.mark.parametrize(
    ("mbean", "kind", "name"),
    [
        (
            "kafka.network:type=RequestChannel,name=RequestQueueSize",
            "gauge",
            "kafka_network_requestchannel_requestqueuesize",
        ),
        (
            "kafka.network:type=RequestMetrics,name=RequestsPerSec",
            "counter",
            "kafka_network_requestmetrics_requests_total",
        ),
        ("kafka.network:type=RequestMetrics,name=TotalTimeMs", "histogram", "kafka_network_requestmetrics_totaltimems"),
        ("kafka.network:type=Processor,name=IdlePercent", "gauge", "kafka_network_processor_idle_percent"),
        (
            "kafka.server:type=socket-server-metrics,name=connection-creation-total",
            "counter",
            "kafka_server_socket_server_metrics_connection_creation_total",
        ),
        ("klamm:type=Client,name=ReceivedBytes", "counter", "klamm_client_receivedbytes_total"),
    ],
)
def test_mbeans_get_names_for_prometheus(mbean, kind, name):
    assert exposed_name(mbean, kind) == name


def test_a_name_that_is_not_an_mbean_is_refused():
    with pytest.raises(ValueError, match="is not of the form"):
        exposed_name("requests", "counter")


def test_every_name_is_valid_in_prometheus_and_unique():
    families = registered()
    names = [exposed_name(name, kind) for name, kind in families.items()]
    assert all(re.fullmatch(r"[a-z_][a-z0-9_]*", name) for name in names)
    assert len(set(names)) == len(names)


def bad_families():
    """Return registered families that Prometheus cannot have."""
    registry = MetricsRegistry()
    read = lambda value, labels=None: lambda: [(labels or {}, value)]  # noqa: E731
    registry.register("klamm:type=Bad,name=NotANumber", "gauge", "Bad.", read("x"))
    registry.register("klamm:type=Bad,name=Nothing", "gauge", "Bad.", read(None))
    registry.register("klamm:type=Bad,name=Labels", "gauge", "Bad.", read(1, "no mapping"))
    registry.register("klamm:type=Bad,name=Doc", "gauge", None, read(1))
    registry.register("klamm:type=Bad,name=Same-Name", "gauge", "Bad.", read(1))
    registry.register("klamm:type=Bad,name=Same_Name", "gauge", "Bad.", read(2))
    registry.register("klamm:type=Bad,name=Kind", "summary", "Bad.", read(1))
    registry._families["no MBean"] = ("gauge", "Bad.", [read(1)])
    return registry


@pytest.mark.parametrize("generate", [generate_latest, generate_openmetrics])
def test_an_invalid_family_does_not_hide_others(generate, caplog):
    registry = bad_families()
    registry.counter("klamm:type=Alone,name=EventsPerSec", "Events.").add(3)
    registry.gauge("zebra:type=Last,name=Level", "A level.", lambda: 0.5)
    prometheus = CollectorRegistry()
    prometheus.register(RegistryCollector(registry))
    for _ in range(3):
        text = generate(prometheus).decode()
    assert "klamm_alone_events_total 3.0" in text
    assert "zebra_last_level 0.5" in text
    assert text.count("klamm_bad_same_name 1.0") == 1
    assert "klamm_bad_same_name 2.0" not in text
    left_out = [record.args[0] for record in caplog.records if "is left out" in record.message]
    assert sorted(set(left_out)) == sorted(left_out), "each once"
    assert {"no MBean", "klamm:type=Bad,name=NotANumber", "klamm:type=Bad,name=Same_Name"} <= set(left_out)


@pytest.fixture
def registry():
    registry = MetricsRegistry()
    registry.counter("klamm:type=Test,name=EventsPerSec", "Events.", who="a").add(3)
    registry.gauge("klamm:type=Test,name=Level", "A level.", lambda: 0.5, **{"odd-label": 'x"\n'})
    histogram = Histogram()
    histogram.add(5)
    histogram.add(900)
    registry.register(
        "klamm:type=Test,name=TimeMs",
        "histogram",
        "Times.",
        lambda: [({"who": "a"}, histogram.snapshot(1.0, range(2, 6)))],
    )
    return registry


def rendered(registry, render=generate_latest, **options):
    collectors = CollectorRegistry()
    collectors.register(RegistryCollector(registry, **options))
    return render(collectors).decode()


def test_text_format_is_readable_by_prometheus(registry):
    exposed = {}
    for family in text_string_to_metric_families(rendered(registry)):
        exposed[family.name] = family
    assert [(s.name, s.labels, s.value) for s in exposed["klamm_test_events"].samples] == [
        ("klamm_test_events_total", {"who": "a"}, 3)
    ]
    assert exposed["klamm_test_level"].samples[0].labels == {"odd_label": 'x"\n'}
    assert exposed["klamm_test_timems"].type == "histogram"
    buckets = {s.labels["le"]: s.value for s in exposed["klamm_test_timems"].samples if s.name.endswith("_bucket")}
    assert buckets == {"4": 0, "8": 1, "16": 1, "32": 1, "+Inf": 2}


def test_openmetrics_has_totals_and_an_end(registry):
    text = rendered(registry, generate_openmetrics)
    assert text.endswith("# EOF\n")
    assert 'klamm_test_events_total{who="a"} 3' in text


def test_patterns_select_and_labels_are_added(registry):
    text = rendered(registry, include=["klamm_test_*"], exclude=["*_timems", "*level"], labels={"cluster": "a"})
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert samples == ['klamm_test_events_total{cluster="a",who="a"} 3.0']


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('bind = "9404"', "must be HOST:PORT"),
        ('bind = "a:9\N{SUPERSCRIPT TWO}"', "must be HOST:PORT"),
        ('labels = { "a-b" = "c" }', '"a-b" cannot be the name of a label'),
        ('labels = { le = "c" }', '"le" cannot be the name of a label'),
    ],
)
def test_wrong_settings_are_reported(tmp_path, line, complaint):
    file = tmp_path / "klamm.toml"
    file.write_text(
        f'[server]\nextensions = ["prometheus"]\n[prometheus]\n{line}\n[listeners.a]\nbind = "127.0.0.1:0"\n'
    )
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        load_plan(file, PluginRegistry())


NAME = re.compile(r"\b((?:kafka|klamm|process)_[a-z0-9_]+)")
DOCS = Path(__file__).resolve().parents[3] / "docs"
OF_FILES = {f"klamm:type=sasl,name={name}-failures-total" for name in ("jwks", "credential-file")}
"""Metrics of files of users and token keys, which no server here uses. tests/unit/sasl tests them."""
PROCESS = {"process_resident_memory_bytes", "process_open_fds", "process_max_fds", "process_cpu_seconds_total"}


def known_names():
    names = set(PROCESS)
    for name, kind in exposed_names().items():
        names |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"} if kind == "histogram" else {name}
    return names


def test_the_dashboard_uses_only_metrics_that_exist():
    dashboard = json.loads(files.read("dashboard"))
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    queries = [one["query"]["query"] for one in dashboard["templating"]["list"] if one["type"] == "query"]
    used = {name for text in expressions + queries for name in NAME.findall(text)}
    assert len(used) > 40
    assert used <= known_names()


def test_the_panels_of_the_dashboard_do_not_overlap():
    taken = set()
    for panel in json.loads(files.read("dashboard"))["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not taken & cells, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


def test_the_alerts_use_only_metrics_that_exist():
    rules = files.read("alerts")
    expressions = re.findall(r"expr: (?:>-\n)?((?:.|\n          )*)", rules)
    used = {name for text in expressions for name in NAME.findall(text)}
    assert rules.count("- alert:") == len(expressions) > 10
    assert used
    assert used <= known_names()


def test_the_documents_name_only_metrics_that_exist():
    known = known_names() | exposed_names().keys()
    beans = registered().keys() | {family.name for family in secure_families()} | OF_FILES
    pages = sorted(DOCS.rglob("*.md"))
    assert len(pages) > 30
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert set(re.findall(r"`((?:kafka|klamm)_[a-z]+_[a-z0-9_]+)`", text)) <= known, page
        assert set(re.findall(r"`(klamm:type=\w+,name=[\w-]+)`", text)) <= beans, page


def test_the_files_can_be_printed(capsys):
    assert files.main(["alerts"]) == 0
    assert capsys.readouterr().out == files.read("alerts")


BEFORE = """
kafka_network_requestmetrics_requests_total{request="Produce",version="11"} 100
kafka_network_requestmetrics_requests_total{request="Fetch",version="17"} 900
kafka_network_requestmetrics_totaltimems_count{request="Produce"} 100
kafka_network_requestmetrics_totaltimems_sum{request="Produce"} 1000
klamm_acceptor_connectionsrefused_total{listener="public",reason="per_ip"} 100
klamm_acceptor_connectionsdelayed_total{listener="public",reason="per_ip_rate"} 100
klamm_clientquota_throttledrequests_total{quota="producer_byte_rate"} 10
klamm_clientquota_throttletimems_total{quota="producer_byte_rate"} 1000
klamm_client_requests_total{client_id="ev[bold]il\\u001b",principal="User:a",host="10.0.0.1",listener="public"} 0
"""
NOW = """
kafka_network_requestmetrics_requests_total{request="Produce",version="11"} 150
kafka_network_requestmetrics_requests_total{request="Produce",version="12"} 10
kafka_network_requestmetrics_requests_total{request="Fetch",version="17"} 40
kafka_network_requestmetrics_totaltimems_count{request="Produce"} 110
kafka_network_requestmetrics_totaltimems_sum{request="Produce"} 1050
kafka_network_processor_idle_percent{listener="public",networkProcessor="0"} 0.25
kafka_network_socketserver_memorypoolused 0
kafka_network_socketserver_memorypoolavailable 9223372036854775807
klamm_acceptor_connectionsrefused_total{listener="public",reason="per_ip"} 102
klamm_acceptor_connectionsdelayed_total{listener="public",reason="per_ip_rate"} 110
klamm_acceptor_connectionspaused_total{listener="public",reason="per_listener"} 14
klamm_clientquota_throttledrequests_total{quota="producer_byte_rate"} 50
klamm_clientquota_throttledrequests_total{quota="consumer_byte_rate"} 0
klamm_clientquota_throttletimems_total{quota="producer_byte_rate"} 8000
klamm_client_requests_total{client_id="ev[bold]il\\u001b",principal="User:a",host="10.0.0.1",listener="public"} 20
"""


def test_rates_are_of_growth_and_a_counter_that_fell_was_reset():
    seen = Difference(Snapshot.parse(NOW, 12.0), Snapshot.parse(BEFORE, 10.0))
    rates = seen.rates("kafka_network_requestmetrics_requests_total", "request")
    assert rates == {("Produce",): 30.0, ("Fetch",): 20.0}
    assert seen.means("kafka_network_requestmetrics_totaltimems", "request") == {"Produce": 5.0}


def test_without_an_earlier_sample_there_are_no_rates():
    seen = Difference(Snapshot.parse(NOW, 12.0), None)
    assert seen.rates("kafka_network_requestmetrics_requests_total", "request") == {}
    assert seen.means("kafka_network_requestmetrics_totaltimems", "request")["Produce"] == pytest.approx(1050 / 110)


def test_top_shows_a_server():
    out = io.StringIO()
    before, now = (text.replace("\\u001b", "\x1b") for text in (BEFORE, NOW))
    seen = Difference(Snapshot.parse(now, 12.0), Snapshot.parse(before, 10.0))
    Console(file=out, width=140).print(top.frame(seen, "http://server/metrics"))
    shown = out.getvalue()
    assert re.search(r"public +0 +75% +█{8}░░", shown)
    assert re.search(r"Produce +30 ", shown)
    assert "\x1b" not in shown
    assert "ev[bold]il?" in shown
    assert "refused 1/s   delayed 5/s   paused 7/s" in " ".join(shown.split(" "))
    assert re.search(r"producer_byte_rate +20 +3,500 +50 +8 +160", shown)
    assert "consumer_byte_rate" not in shown
    assert "pool" not in shown


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("10.0.0.1:9404", "http://10.0.0.1:9404/metrics"),
        ("https://a/x/metrics", "https://a/x/metrics"),
        ("http://a:1", "http://a:1/metrics"),
    ],
)
def test_top_needs_only_an_address(given, url):
    assert find(given).metrics_url == url


def test_top_reports_a_server_that_does_not_answer(capsys):
    assert top.main(["127.0.0.1:1", "--once"]) == 1
    assert 'extensions = ["prometheus"]' in capsys.readouterr().err


def test_a_taken_address_stops_the_start():
    from klamm.server.server import StartError

    settings = ["server.extensions=prometheus", "prometheus.bind=127.0.0.1:0"]
    with EmbeddedServer(settings) as server:
        host, port = server.server.extensions[0].address
        other = EmbeddedServer(["server.extensions=prometheus", f"prometheus.bind={host}:{port}"])
        with pytest.raises(StartError, match="extension prometheus .*Address already in use"):
            other.start()


def test_services_can_be_read_without_a_server():
    assert list(ServerServices().metrics.collect()) == []
