"""Tests of the site: every page is in the navigation, every link has a target, nothing is loaded from elsewhere."""

import re
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import tomli

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
NAV = tomli.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]
PLACES = [place for section in NAV for places in section.values() for place in places]


def test_every_page_is_once_in_the_navigation():
    assert sorted(PLACES) == sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def test_the_sections_have_their_order():
    assert [name for section in NAV for name in section] == [
        "Start",
        "Test with klamm",
        "Front door",
        "Audit",
        "Write a plugin",
        "Reference",
        "Operate",
        "Explain",
    ]


class Page(HTMLParser):
    """The links of a page, its anchors, and the files that a browser loads with it."""

    def __init__(self, path):
        super().__init__()
        self.markdown = ""
        self.links, self.anchors, self.loaded, self.classes = [], set(), [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors.add(values.get("id") or values.get("name"))
        self.classes.update((values.get("class") or "").split())
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") in ("stylesheet", "preconnect", "icon", "modulepreload"):
            self.loaded.append(values["href"])
        elif tag == "link" and values.get("type") == "text/markdown":
            self.markdown = values["href"]
        elif values.get("src"):
            self.loaded.append(values["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("zensical", reason="needs the extra docs")
    from tools.build_site import build

    folder = tmp_path_factory.mktemp("site") / "site"
    build(folder)
    return folder


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path) for path in site.rglob("*.html")}


def lost_links(pages):
    lost = defaultdict(list)
    for path, page in pages.items():
        # The page for missing pages may be shown at any address.
        for link in page.links if path.name != "404.html" else ():
            parts = urlsplit(link)
            if not (parts.scheme or parts.netloc):
                target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
                anchors = pages[target].anchors if target in pages else {unquote(parts.fragment)}
                if not target.is_file() or (parts.fragment and unquote(parts.fragment) not in anchors):
                    lost[link].append(path.name)
    return lost


def test_every_link_leads_to_a_page_and_an_anchor_of_it(pages):
    assert lost_links(pages) == {}


def test_nothing_is_loaded_from_elsewhere(site, pages):
    for path, page in pages.items():
        for source in page.loaded:
            assert not urlsplit(source).netloc, (path, source)
            assert source.startswith("data:") or path.name == "404.html" or (path.parent / source).is_file(), source
        # Zensical's script loads another one for diagrams of Mermaid.
        assert "mermaid" not in page.classes, path
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(?:https?:)?//", style.read_text(encoding="utf-8")), style


def test_each_page_has_its_markdown_beside_it(site, pages):
    for place in PLACES:
        text = (site / place).read_text(encoding="utf-8")
        assert text.startswith("# "), place
        for link in re.findall(r"\]\((?![a-z]+:)([^)#\s]+)", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)):
            assert (site / place).parent.joinpath(link).exists(), (place, link)
        html = site / place.replace("README.md", "index.md").replace(".md", ".html")
        assert pages[html].markdown == Path(place).name
    assert not pages[site / "404.html"].markdown


def test_llms_txt_lists_every_page_with_its_first_sentence(site):
    text = (site / "llms.txt").read_text(encoding="utf-8")
    assert text.startswith("# klamm\n\n> ")
    found = re.findall(r"^- \[.+\]\((.+)\): (.*)$", text, re.MULTILINE)
    assert [place for place, _ in found] == PLACES
    assert [place for place, sentence in found if len(sentence) < 20] == []


def test_boxes_drawn_as_text_become_pictures(site):
    from tools.draw import svg

    page = (site / "design.html").read_text(encoding="utf-8")
    assert page.count('<svg class="drawing"') >= 2
    assert "┌" not in page
    assert "┌" in (site / "design.md").read_text(encoding="utf-8")
    # A box around one character, and an arrow to it.
    drawing = svg("  ┌──┐\n─►│ a│\n  └──┘")
    assert drawing.count("<path") == 4 * 2 + 2 * 2 * 2 + 2 * 2 + 2 + 1
    assert drawing.count("<polygon") == 1
    assert ">a</text>" in drawing


def test_blocks_of_several_languages_become_tabs(site):
    page = (site / "start.html").read_text(encoding="utf-8")
    assert re.findall(r"<label for=\"?__tabbed_1_\d\"?>(\w+)</label>", page) == ["Python", "Java", "Node", "Go"]
    assert "tabbed" not in (site / "start.md").read_text(encoding="utf-8")


def test_links_with_the_name_of_a_file_show_the_title_of_the_page(site):
    page = (site / "migrate-testcontainers.html").read_text(encoding="utf-8")
    assert '<a href="testing/java.html#spring-boot">Tests on the JVM</a>' in page
    for place in PLACES:
        html = site / place.replace("README.md", "index.md").replace(".md", ".html")
        assert re.findall(r">[^<>]*\.md</a>", html.read_text(encoding="utf-8")) == [], place


def test_long_names_in_tables_have_places_to_break(site):
    assert "<code>num.<wbr>io.<wbr>threads</code>" in (site / "migrate-server-properties.html").read_text(
        encoding="utf-8"
    )


def test_versions_have_the_order_of_their_numbers():
    from tools.build_site import order

    assert sorted(["1.0", "0.10.0", "1.0rc1", "0.9.0"], key=order) == ["0.9.0", "0.10.0", "1.0rc1", "1.0"]
