"""Numbers in the prose of the documents are those of the code."""

import tomllib
from pathlib import Path

import pytest

from klamm.network.answer_queue import MAX_PENDING, MAX_PENDING_BYTES
from klamm.network.pipes import PIPE_BYTES
from klamm.requests.limits import DEFAULT_MAX_ANSWER_BYTES, INLINE_MAX_BYTES, INLINE_MAX_ELEMENTS
from klamm.requests.slow_requests import LINES_A_MINUTE
from klamm.runtime.shared_interpreter import AT_ONCE, SWITCH_INTERVAL_S
from klamm.wire.compression import MAX_UNCOMPRESSED_BYTES
from klamm.workers.supervisor import FIRST_DELAY_MS, GIVE_UP_AFTER, LONGEST_DELAY_MS
from klamm_broker.telemetry.otlp import MAX_FIELDS
from klamm_broker.telemetry.values import MAX_BYTES, MAX_CLIENT_BYTES, MAX_POINTS
from klamm_faults.rule import FaultKind
from klamm_metrics.http import CONNECTIONS, DEADLINE_S

ROOT = Path(__file__).resolve().parents[3]
KIB, MIB = 1024, 1024 * 1024
WORDS = {1: "one", 2: "two", 5: "five", 13: "thirteen", 16: "sixteen"}
LISTENERS = tomllib.loads((ROOT / "examples" / "security" / "klamm.toml").read_text(encoding="utf-8"))["listeners"]
FIRST_S, LONGEST_S = FIRST_DELAY_MS / 1000, LONGEST_DELAY_MS / 1000


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("README.md", f"{WORDS[len(FaultKind)]} kinds of faults"),
        ("README.md", f"has {WORDS[len(LISTENERS)]} listeners for one broker"),
        ("docs/design.md", f"a pipe of {PIPE_BYTES // KIB} KiB"),
        ("docs/design.md", f"up to {MAX_PENDING} or {MAX_PENDING_BYTES // MIB} MiB of them"),
        ("docs/gateway.md", f"up to {MAX_PENDING} of them or {MAX_PENDING_BYTES // MIB} MiB"),
        ("docs/a-request.md", f"up to {INLINE_MAX_BYTES // KIB} KiB and {INLINE_MAX_ELEMENTS} elements"),
        ("docs/protection.md", f"up to {INLINE_MAX_BYTES // KIB} KiB of frame and {INLINE_MAX_ELEMENTS} elements"),
        ("docs/protection.md", f"an answer, beside records | {DEFAULT_MAX_ANSWER_BYTES // MIB} MiB"),
        (
            "docs/protection.md",
            f"{WORDS[AT_ONCE[False]]} at a time of APIs that never wait, and {WORDS[AT_ONCE[True]]} that",
        ),
        ("docs/protection.md", f"threads switch each {SWITCH_INTERVAL_S * 1000:g} ms"),
        ("docs/protection.md", f"one at a time, to {MAX_UNCOMPRESSED_BYTES // MIB} MiB at most"),
        ("docs/workers.md", f"after {FIRST_S:g} s, then {2 * FIRST_S:g} s, and so on up to {LONGEST_S:g} s"),
        ("docs/workers.md", f"each has failed {WORDS[GIVE_UP_AFTER]} times in a row"),
        ("docs/metrics.md", f"At most {WORDS[CONNECTIONS]} connections are open"),
        ("docs/metrics.md", f"A connection has {DEADLINE_S:g} s for its request and the response"),
        ("docs/metrics.md", f"At most {LINES_A_MINUTE} lines a minute for each API"),
        ("docs/metrics.md", f"At most {MAX_POINTS:,} values and {MAX_CLIENT_BYTES // KIB} KiB of a client are kept"),
        ("docs/metrics.md", f"and {MAX_BYTES // MIB} MiB in all"),
        ("docs/metrics.md", f"A push of more than {MAX_FIELDS:,} fields"),
    ],
)
def test_a_number_in_a_document_equals_the_codes(document, said):
    text = " ".join((ROOT / document).read_text(encoding="utf-8").split())
    assert said in text
