"""docs/protection.md has the default limits of requests."""

import re
from pathlib import Path

from klamm.requests.limits import request_limits
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.api_keys import SPECS, spec_of
from klamm.wire.messages.api_versions import ApiVersionsRequest

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "protection.md").read_text(encoding="utf-8")
UNITS = {"KiB": 1024, "MiB": 1024 * 1024, "": 1}
SOCKET_MAX_BYTES, TOKEN_MAX_BYTES = 77 * UNITS["MiB"], 99 * UNITS["KiB"]
OF_SETTINGS = {"`socket_request_max_bytes`": SOCKET_MAX_BYTES, "`sasl.server.max.receive.size`": TOKEN_MAX_BYTES}


def amount(text):
    if text in OF_SETTINGS:
        return OF_SETTINGS[text]
    number, _, unit = text.replace(",", "").partition(" ")
    return int(number) * UNITS[unit]


def documented(limit):
    """Return the limit of each API from the text `DEFAULT; LIMIT for API, API (and MORE) and API; …`."""
    cell = re.search(rf"^\| `{limit}`: [^|]*\| ([^|]+) \|", PAGE, re.MULTILINE)[1]
    default, *parts = cell.split("; ")
    limits = dict.fromkeys((spec.name for spec in SPECS), amount(default))
    for part in parts:
        text, _, apis = part.partition(" for ")
        for name, more in re.findall(r"\b([A-Z]\w+)(?: \(and ([^)]*)\))?", apis.partition(". ")[0]):
            if name in limits:
                limits[name] = amount(text) + (amount(more) if more else 0)
    return limits


def test_the_page_has_the_largest_frame_of_each_api():
    limits = request_limits(socket_max_bytes=SOCKET_MAX_BYTES, token_max_bytes=TOKEN_MAX_BYTES)
    assert documented("request_max_bytes") == {spec.name: limits.max_bytes[spec.api_key] for spec in SPECS}


def test_the_page_has_the_most_elements_of_each_api():
    limits = request_limits()
    assert documented("request_max_elements") == {spec.name: limits.max_elements[spec.api_key] for spec in SPECS}


def test_the_page_has_the_costliest_frame_of_each_api_in_its_last_version():
    table = PAGE.partition("| API | version | worst frame |")[2].partition("\n\n")[0]
    rows = [(name, int(version)) for name, version in re.findall(r"^\| (\w+) \| (\d+) \|", table, re.MULTILINE)]
    settings = ["client.telemetry.enable=true"]
    with EmbeddedServer(settings) as server, RawClient(server.address()) as client:
        served = client.call(ApiVersionsRequest("klamm", "1"), 3).api_keys
    assert rows == [(spec_of(one.api_key).name, one.max_version) for one in sorted(served, key=lambda one: one.api_key)]
