"""Tests of the report's page in a real Chromium, on screen and in print: an attack, and names that could do harm."""

import json
import re

import pytest

from klamm_spark.queries.event_views import DuckDbViews, Period
from klamm_spark.report.command import answer
from klamm_spark.report.html import render
from klamm_spark.spool.layout import OPEN_SUFFIX, SegmentName
from tests.audit_samples import sample_events
from tests.spark.browser import chromium, seen_by
from tests.unit.audit.test_detections import BOOT, failures, fetch, grant, login

HARM = "<script>alert(1)</script>\"'&</td>`[{principal}]\u202e" + "W" * 60 + "\n\x1b[31m"
LIGHT, DARK = "--blink-settings=preferredColorScheme=1", "--blink-settings=preferredColorScheme=0"
WIDTHS = (390, 1280)


def attack():
    """Yield the events of an attack, three times: guessed passwords, then a grant and its use.

    One name could do harm.
    """
    events = []
    for number, names in enumerate((("User:carol", "payroll"), ("User:dan", "ledger"), (f"User:{HARM}", HARM))):
        start_s, (who, topic) = 600 * (number + 1), names
        address = f"127.0.0.{number + 1}"
        events += failures(9, every_s=7, address=address, start_s=start_s)
        events += [login(start_s + 70, address, "User:a"), grant(start_s + 100, topic, who)]
        events += [fetch(start_s + 104 + n, topic, who, client_id=HARM, listener="secure") for n in range(3)]
    return events


def harmed(events):
    """Replace each client's text in every third event by a text that could do harm."""
    chosen = ("client_id", "client_software_name", "client_software_version", "principal", "reason", "error_name")
    for number, event in enumerate(events):
        yield {**event, **{key: HARM for key in chosen if key in event and number % 3 == 0}}


def write_page(folder, events, since_us=0):
    lines = [{**one, "seq": seq, "event_id": f"node-1/{BOOT}/{seq}"} for seq, one in enumerate(events)]
    path = folder / (SegmentName(BOOT, 0).stem + OPEN_SUFFIX)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    views = DuckDbViews(None, Period(since_us))
    views.add([str(path)])
    report = answer(views, f"/spool/{HARM}")
    views.close()
    page = folder / "report.html"
    page.write_text(render(report), encoding="utf-8")
    return report, page


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    samples = list(harmed(sample_events(2000, step_us=1_200_000)))
    events = sorted([*samples, *attack()], key=lambda event: event["time_us"])
    return write_page(tmp_path_factory.mktemp("page"), events, samples[200]["time_us"])


def test_the_page_is_one_small_file_that_loads_nothing(written):
    text = written[1].read_text()
    assert len(text) < 1_000_000
    assert re.findall(r'(?:src|href)="([^"#][^"]*)"|url\((?!#)([^)]*)\)|@import', text) == []
    identifiers = re.findall(r'\bid="([^"]*)"', text)
    assert len(identifiers) == len(set(identifiers))
    assert set(re.findall(r'href="#([^"]*)"', text)) <= set(identifiers)
    assert text.count("<script") == 1
    assert "\u202e" not in text
    assert "\x1b" not in text


def test_a_finding_is_one_plain_sentence(written):
    sentences = {card.sentence() for card in written[0].cards}
    granted = "read 6.0 MiB of {} four seconds after User:a granted it, from 10.0.0.1 by listener secure"
    assert {f"User:carol {granted.format('payroll')}", f"User:dan {granted.format('ledger')}"} <= sentences


SEE = """
const rgb = text => (text.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
  .reduce((sum, v, n) => sum + v * [.2126, .7152, .0722][n], 0);
const ground = at => { for (; at; at = at.parentElement) { const c = rgb(getComputedStyle(at).backgroundColor);
  if (c.length < 4 || c[3] > 0) return c; } };
document.querySelectorAll('details').forEach(one => one.open = true);
const walk = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
const broken = [], pale = [], range = document.createRange();
for (let node; node = walk.nextNode();) {
  const of = node.parentElement, style = getComputedStyle(of);
  if (!of.getClientRects().length || of.closest('svg title')) continue;
  for (const word of node.data.matchAll(/[^\\s-]+/g)) {
    range.setStart(node, word.index); range.setEnd(node, word.index + word[0].length);
    const tops = [...range.getClientRects()].filter(box => box.width).map(box => Math.round(box.top));
    if (new Set(tops).size > 1) broken.push(word[0]);
  }
  const svg = of.closest('svg'), ink = svg ? style.fill : style.color;
  const behind = of.tagName === 'text' ? rgb(getComputedStyle(of.previousElementSibling).fill) : ground(of);
  const [a, b] = [light(rgb(ink)), light(behind)].sort((x, y) => y - x), contrast = (a + .05) / (b + .05);
  if (node.data.trim() && contrast < 4.5) pale.push([node.data.trim(), ink, contrast]);
}
const root = document.documentElement, all = what => [...document.querySelectorAll(what)], cards = all('.finding');
const count = what => all(what).length, rows = all('tbody tr').map(row => row.getBoundingClientRect().height);
const first = cards[0].querySelector('.sentence').getBoundingClientRect().bottom;
const search = document.querySelector('#search'), shown = () => cards.filter(card => card.checkVisibility()).length;
const ask = words => { search.value = words; search.dispatchEvent(new Event('input')); return shown(); };
const dark = matchMedia('(prefers-color-scheme: dark)').matches;
seen = {width: innerWidth, dark, over: root.scrollWidth - root.clientWidth, broken, pale, first, row: Math.max(...rows),
  harm: count('main script'), cards: cards.length, circles: count('.timeline circle'), flags: count('figure circle'),
  totals: Object.fromEntries(all('[data-total]').map(one => [one.dataset.total, one.innerText])),
  found: ask('payroll grants'), none: ask('no such thing'), all: ask('')};
"""


@pytest.mark.parametrize("scheme", [LIGHT, DARK])
@pytest.mark.parametrize("width", WIDTHS)
def test_chromium_shows_the_whole_page(written, tmp_path, width, scheme):
    report, page = written
    seen = seen_by(page, SEE, tmp_path, scheme, width_px=width)
    assert (seen["width"], seen["dark"]) == (width, scheme == DARK)
    assert (seen["over"], seen["harm"], seen["broken"], seen["pale"]) == (0, 0, [], [])
    assert seen["row"] < 700
    if width == 1280:
        assert seen["first"] < 800
    assert seen["cards"] == seen["flags"] == min(len(report.cards), 24) == seen["all"]
    assert seen["circles"] == sum(len(card.moments) for card in report.cards[:24])
    assert seen["totals"]["requests"] == f"{report.totals['requests']:,}"
    assert len(seen["totals"]) == 5
    assert (seen["found"], seen["none"]) == (1, 0)


def pages(page, folder):
    chromium(f"--print-to-pdf={folder / 'report.pdf'}", "--no-pdf-header-footer", page.as_uri())
    pdf = (folder / "report.pdf").read_bytes()
    assert pdf.startswith(b"%PDF-")
    return len(re.findall(rb"/Type\s*/Page\b", pdf))


def test_chromium_prints_the_page_on_two_sheets(written, tmp_path):
    assert pages(written[1], tmp_path) == 2
