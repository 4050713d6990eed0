"""Readers find their way through the site: from its first page to the answers of questions, and between versions.

`pytest -s` prints the pages of each way and the seconds of the browser.
"""

import json
from typing import NamedTuple

import pytest

from tests.interop.site_walk import walk
from tests.unit.docs.test_site import Page, lost_links

pytestmark = [pytest.mark.interop, pytest.mark.once, pytest.mark.timeout(600)]
FEW = 3


class Search(NamedTuple):
    """A search: one click for the field, and one for the best result. `words` are typed."""

    words: str


class Way(NamedTuple):
    """A question, the links to click or words to search, and a text of the section where the way ends."""

    question: str
    steps: list[str | Search]
    answer: str


WAYS = [
    Way("How do I run my pytest suite with SCRAM?", ["A secure broker"], "klamm_secure"),
    Way(
        "Which client makes a processor hot?", ["Operate", "Operate: find what is slow, and who causes it"], "klamm top"
    ),
    Way("What becomes of my server.properties?", ["from server.properties"], "[listeners.public]"),
    Way("Who deleted my topic?", [Search("who deleted")], "--question changes"),
    Way("How do I write a filter?", ["yours", "filter"], "klamm plugins new"),
    Way("How do I put TLS and users before a cluster?", ["The gateway"], 'api_set = "gateway"'),
    Way("How do my tests in Go move from containers?", ["From Testcontainers", "Go"], "klamm/testcontainers/kafka"),
    Way("What survives a power cut?", ["Durability", "Acknowledged changes"], "log.flush.interval.messages"),
    Way("Why UNKNOWN_TOPIC_OR_PARTITION?", ["Troubleshooting", "A request is refused"], "auto.create.topics.enable"),
    Way("How do I hold a client to 1 MB/s?", ["Quotas", "Client quotas"], "producer_byte_rate"),
    Way("How do clients log in with OAuth?", [Search("log in with OAuth")], "OAUTHBEARER"),
    Way("Where do I report a hole?", ["Security", "Report a vulnerability"], "privately"),
]
"""Ways that each start at another link of the first page."""


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    pytest.importorskip("zensical", reason="needs the extra docs")
    from tools.build_site import add_version

    folder = tmp_path_factory.mktemp("versions")
    for version in ("0.10.0", "0.9.0"):
        add_version(folder, version)
    return folder


def clicks(way):
    return sum(2 if isinstance(step, Search) else 1 for step in way.steps)


def calls(way):
    for step in way.steps:
        name, text = ("search", step.words) if isinstance(step, Search) else ("click", step)
        yield f"await {name}({json.dumps(text)}); pages.push(place());"


def test_readers_find_answers_with_a_few_clicks(versions):
    script = "const seen = []; let pages, began;"
    for way in WAYS:
        script += 'await open("/latest/index.html"); pages = []; began = performance.now();' + "".join(calls(way))
        script += "seen.push([pages, (performance.now() - began) / 1000, section()]);"
    found = walk(versions, "/latest/index.html", script + "return seen;")
    for way, (pages, seconds, section) in zip(WAYS, found, strict=True):
        print(f"{way.question} {clicks(way)} clicks, {seconds:.1f} s: {' '.join(pages)}")
        assert clicks(way) <= FEW
        assert way.answer in section, way.question


def test_a_reader_changes_between_versions(versions):
    listed = json.loads((versions / "versions.json").read_text(encoding="utf-8"))
    assert [(one["version"], one["aliases"]) for one in listed] == [("0.10.0", ["latest"]), ("0.9.0", [])]
    assert (versions / "latest" / "gateway.html").read_bytes() == (versions / "0.10.0" / "gateway.html").read_bytes()
    assert lost_links({path: Page(path) for path in versions.glob("[!l]*/**/*.html")}) == {}
    script = """
    await until(() => place() === "/latest/index.html", "way to the newest version");
    await open("/latest/gateway.html");
    const seen = [];
    for (const version of [null, "0.9.0", "0.10.0"]) {
      const links = () => [...site.contentDocument.querySelectorAll(".md-version__link")];
      if (version) await follow(await until(() => links().find((one) => words(one) === version), version));
      seen.push([place(), words(await until(() => shown(".md-version__current")[0], "version"))]);
    }
    return seen;"""
    assert walk(versions, "/index.html", script) == [
        ["/latest/gateway.html", "0.10.0"],
        ["/0.9.0/gateway.html", "0.9.0"],
        ["/0.10.0/gateway.html", "0.10.0"],
    ]
