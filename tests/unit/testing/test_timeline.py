"""Tests of the timeline of a server: its content, folded lines, its text, and its page in a browser."""

import random
import re
from collections import Counter
from types import SimpleNamespace

import pytest

from klamm.testing import EmbeddedServer, RawClient
from klamm.testing.timeline.moments import QUIET, Mark, Moment, fold
from klamm.testing.timeline.timeline import MOMENTS_KEPT, Timeline
from klamm.wire.messages import (
    end_txn,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    list_groups,
    metadata,
    produce,
)
from klamm.wire.records import Record, encode_batch
from tests.spark.browser import seen_by

HARM = "<script>alert(1)</script>\"'&`</title>\u202e\x1b[31m" + "W" * 60
LIGHT, DARK = "--blink-settings=preferredColorScheme=1", "--blink-settings=preferredColorScheme=0"


@pytest.fixture
def server():
    with EmbeddedServer(faults=True, recording=True, nodes=3) as server:
        yield server


def produced(topic):
    batch = bytes(encode_batch([Record(timestamp_ms=7, value=b"v")]))
    data = produce.TopicProduceData(topic, bytes(16), [produce.PartitionProduceData(0, batch)])
    return produce.ProduceRequest(None, -1, 1000, [data])


def lines_of(server, **options):
    """Return the lines without their times, and without those of internal topics."""
    text = server.timeline(**options).text(columns=200)
    return [line[11:] for line in text.splitlines() if re.match(r" *-?[0-9.]+  ", line) and "__" not in line]


def test_events_appear_in_their_lanes(server):
    topic = server.create_topic("orders")
    server.nodes.move_leader(topic, 0, 1)
    server.forget()
    server.faults.add("error", api="Produce", error="NOT_LEADER_OR_FOLLOWER", count=1)
    with (
        RawClient(server.address(), client_id="shop") as shop,
        RawClient(server.address(), client_id="reader") as reader,
    ):
        asked = [metadata.MetadataRequestTopic(name=topic)]
        for _ in range(3):
            shop.call(metadata.MetadataRequest(asked), 9)
        shop.call(produced(topic), 9)
        shop.call(produced(topic), 9)
        protocol = join_group.JoinGroupRequestProtocol("range", b"")
        reader.call(join_group.JoinGroupRequest("g", 6000, 6000, "", None, "consumer", [protocol]), 5)
        server.nodes.move_coordinator("tx", 1)
        started = shop.call(init_producer_id.InitProducerIdRequest("tx", 10_000), 4)
        shop.call(end_txn.EndTxnRequest("tx", started.producer_id, started.producer_epoch, True), 3)
    server.nodes.stop(1)
    found = lines_of(server, failure="it failed")
    assert found == [
        "a.1   3 polls: 3 Metadata",
        "a.1 ! Produce orders-0: fault error NOT_LEADER_OR_FOLLOWER, refused",
        "a.1   Produce orders-0",
        ".b1 ~ JoinGroup g: MEMBER_ID_REQUIRED",
        "..1 > node 1 coordinates tx",
        "a.1 = InitProducerId tx",
        "a.1 x EndTxn tx commits: INVALID_TXN_STATE",
        "..1 > node 1 stopped",
        "... > no node leads orders-0, after node 1",
        "... # it failed",
    ]
    assert server.timeline().text().splitlines()[1:4] == ["a shop", "b reader", "1 node 1"]


def test_a_restart_appears_at_its_place(server):
    def ask(group):
        with RawClient(server.address(), client_id="mine") as client:
            client.call(find_coordinator.FindCoordinatorRequest(group), 3)

    def lines():
        return [re.sub(r"^\S+ [ >] ", "", line) for line in lines_of(server)]

    for group in ("before", "before", "and again"):
        ask(group)
    server.restart()
    ask("after")
    assert lines() == ["3 polls: 3 FindCoordinator", "server stopped", "server started", "FindCoordinator after"]
    assert lines() == lines()
    server.reset()
    assert not server.timeline(failure="it failed")


def test_folded_lines_contain_every_moment():
    """Each moment is in one line, no line crosses a mark, and there are few lines."""
    choose = random.Random(43)
    for _ in range(200):
        moments = []
        for number in range(choose.randrange(60)):
            mark = choose.choice([Mark.POLLING, Mark.POLLING, Mark.REQUEST, Mark.ERROR, Mark.NODE])
            client = "" if mark is Mark.NODE else choose.choice("ab")
            text = choose.choice(["Fetch", "Metadata"])
            polls = Counter([text] if mark is Mark.POLLING else [])
            moments.append(Moment(number, number + 1, client, frozenset({1}), mark, text, number, polls=polls))
        choose.shuffle(moments)
        lines = fold(moments)
        assert sum(line.count for line in lines) == len(moments)
        assert [line.started_ns for line in lines] == sorted(line.started_ns for line in lines)
        assert sum(line.polls.total() for line in lines) == sum(each.mark is Mark.POLLING for each in moments)
        for client in "ab":
            own = [line for line in lines if line.client in ("", client)]
            runs = [[]]
            for line in own:
                runs.append([]) if line.mark not in QUIET else runs[-1].append((line.mark, line.text))
            for run in runs:
                assert sum(mark is Mark.POLLING for mark, _text in run) <= 1
                assert len(set(run)) == len(run) <= 3


def test_the_size_of_a_timeline_is_limited():
    moments = [
        Moment(at, at, f"client-{at % 50}", frozenset({1}), Mark.ERROR, f"text {at}", SimpleNamespace(to_json=dict))
        for at in range(5000)
    ]
    timeline = Timeline.of(moments, 5000, failure="it failed")
    assert (len(timeline.moments), timeline.dropped) == (MOMENTS_KEPT + 1, 4000)
    assert (len(timeline.clients), timeline.clients[-1]) == (20, "other clients")
    text = timeline.text(lines=10).splitlines()
    assert text[-11] == "... 4,991 lines before"
    assert all(len(line) <= 80 for line in text)
    assert text[-1].endswith("# it failed")
    large = SimpleNamespace(to_json=lambda: {"request": "x" * 100_000})
    page = Timeline.of([Moment(1, 1, "a", frozenset(), Mark.REQUEST, "one", large)], 2).html()
    assert len(page) < 20_000


def test_names_that_clients_choose_are_escaped(server):
    with RawClient(server.address(), client_id=HARM) as client:
        client.call(find_coordinator.FindCoordinatorRequest(HARM), 3)
        client.call(heartbeat.HeartbeatRequest(HARM), 4)
    timeline = server.timeline(HARM, failure=HARM)
    page, text = timeline.html(), timeline.text()
    assert page.count("<script") == 1
    assert page.count("alert(1)") > 5
    for shown in (page, text):
        assert all(character.isprintable() or character == "\n" for character in shown)
    assert set(re.findall(r'(?:src|href)="([^"]*)"|url\(([^)]*)\)|@import', page)) == {
        (f"#m{number}", "") for number, each in enumerate(timeline.moments) if each.client or each.nodes
    }


SEE = """
document.querySelectorAll("details").forEach(one => one.open = true);
document.querySelector("li:last-child").scrollIntoView({block: "end"});
const end = document.querySelector("li.failure").getBoundingClientRect();
const box = node => [node.scrollWidth, node.clientWidth];
const style = getComputedStyle(document.body);
seen = {
  opened, end: [end.top, end.bottom, innerHeight], wide: box(document.documentElement),
  outside: [...document.querySelectorAll("li, .what, pre, h1")].filter(one =>
    one.getBoundingClientRect().right > innerWidth).length,
  rows: document.querySelectorAll("li").length, colours: [style.color, style.backgroundColor],
};
"""
OPENED = "const last = document.querySelector('li.failure').getBoundingClientRect();\
 const opened = scrollY > 0 && last.top >= 0 && last.bottom <= innerHeight;"


@pytest.mark.parametrize(("width_px", "scheme"), [(390, DARK), (1280, LIGHT)])
def test_a_browser_opens_the_page_at_the_failure(server, tmp_path, width_px, scheme):
    with RawClient(server.address(), client_id=HARM) as client:
        for number in range(80):
            client.call(find_coordinator.FindCoordinatorRequest(f"group-{number}"), 3)
            client.call(list_groups.ListGroupsRequest([HARM]), 4)
            client.call(heartbeat.HeartbeatRequest(f"{HARM}-{number}"), 4)
    page = tmp_path / "page.html"
    page.write_text(server.timeline("a test", failure=HARM).html(), encoding="utf-8")
    seen = seen_by(page, OPENED + SEE, tmp_path, scheme, width_px=width_px)
    assert seen["opened"] is True
    assert seen["rows"] == len(server.timeline(failure=HARM).moments)
    assert seen["outside"] == 0
    assert seen["wide"][0] == seen["wide"][1] == width_px
    text, back = (sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in seen["colours"])
    assert (text > back) is (scheme == DARK)
