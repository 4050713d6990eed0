"""No frame within the limits holds a network thread for long, or takes more memory than its budget."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from itertools import chain

import pytest

from klamm import AuthenticationStep
from klamm.testing import EmbeddedServer
from klamm.wire.api_keys import ApiKey, spec_of
from tests.faults.cost_meter import (
    ALLOWED,
    DEFAULT_LIMITS,
    INLINE,
    MEMORY_BUDGET_BYTES,
    NETWORK_BUDGET_MS,
    CostMeter,
    frames_of,
    machine_factor,
    metadata_of_all,
)
from tests.faults.costly_frames import VALUES, CostlyFrame, costly_frames
from tests.unit.sasl.playbook import Playbook

SAMPLED = {"max_bytes": 4 * 1024 * 1024, "max_elements": 4_000}
OPEN: tuple[str, ...] = ("listeners.default.gates=[]", "client.telemetry.enable=true")
GUARDED = (*OPEN, 'listeners.default.authorizer="acl"')


@pytest.fixture(params=[OPEN, GUARDED], ids=["open", "guarded"])
def meter(request: pytest.FixtureRequest) -> Iterator[CostMeter]:
    with EmbeddedServer(list(request.param)) as server:
        made = CostMeter(server, topics=40)
        # The garbage of the other tests must not count as the cost of a frame.
        gc.collect()
        gc.freeze()
        yield made
        gc.unfreeze()


@pytest.fixture(scope="module")
def machine() -> float:
    """Return how many times slower this machine is than the one for which the budgets are stated, at least one."""
    return max(1.0, machine_factor())


def too_slow(
    meter: CostMeter, limits: dict[str, int], *, every_version: bool, values: Sequence[str] = VALUES
) -> list[str]:
    found = []
    for made in frames_of(meter.served, **limits, every_version=every_version, values=values):
        if meter.inline_ms(made.frame) > NETWORK_BUDGET_MS:
            # Measured again, because the garbage collector may have run in it.
            inline_ms = meter.inline_ms(made.frame)
            if inline_ms > NETWORK_BUDGET_MS:
                found.append(f"{made.api} v{made.version}, {made.kind}: {inline_ms:.0f} ms")
    return found


def test_no_small_frame_holds_the_network_thread(meter: CostMeter) -> None:
    assert too_slow(meter, INLINE, every_version=False) == []


def test_no_large_frame_holds_the_network_thread(meter: CostMeter) -> None:
    slow = []
    for api_key, versions in meter.served:
        frames = costly_frames(spec_of(api_key).name, versions[-1], **ALLOWED, values=("alike",))
        slow.extend(made.kind for made in frames if meter.inline_ms(made.frame) > NETWORK_BUDGET_MS)
    assert slow == []


def test_metadata_of_all_topics_stays_within_the_budget(meter: CostMeter) -> None:
    assert meter.run(metadata_of_all()).inline_ms < NETWORK_BUDGET_MS


@pytest.mark.slow
def test_no_frame_of_any_version_holds_the_network_thread(meter: CostMeter) -> None:
    assert too_slow(meter, INLINE, every_version=True) == []


@pytest.mark.slow
def test_no_frame_within_the_limits_holds_the_network_thread(meter: CostMeter) -> None:
    assert too_slow(meter, ALLOWED, every_version=False, values=("different",)) == []


@pytest.mark.slow
def test_no_frame_takes_more_memory_than_its_budget(meter: CostMeter) -> None:
    assert too_large(meter) == []


def too_large(meter: CostMeter) -> list[str]:
    """Return the frames over the budget: those with a part of the elements say which ones to try at their limits."""
    beyond = []
    for api_key, versions in meter.served:
        api, version = spec_of(api_key).name, versions[-1]
        times = max(1, DEFAULT_LIMITS.max_elements[api_key] // SAMPLED["max_elements"])
        for made in costly_frames(api, version, **SAMPLED, values=("different", "existing")):
            # Again where it is much: a first request imports its modules.
            peaks = (meter.peak_bytes(made.frame) * times for _ in range(2))
            if all(peak_bytes > MEMORY_BUDGET_BYTES for peak_bytes in peaks):
                peak_bytes = max(meter.peak_bytes(frame) for frame in at_limits(api_key, made, meter.last_answer_bytes))
                if peak_bytes > MEMORY_BUDGET_BYTES:
                    beyond.append(f"{api} v{version}, {made.kind}: {peak_bytes >> 20} MiB at its limit")
    return beyond


def at_limits(api_key: int, sampled: CostlyFrame, answer_bytes: int) -> list[bytes]:
    """Return such a frame with all the elements that are allowed, and with as many as the largest answer has."""
    allowed = DEFAULT_LIMITS.max_elements[api_key]
    # An answer that would be larger is refused before it is built.
    answered = SAMPLED["max_elements"] * DEFAULT_LIMITS.max_answer_bytes[api_key] // max(1, answer_bytes)
    values = [one for one in VALUES if one in sampled.kind.split()]
    found = []
    for most in {allowed, min(allowed, answered)}:
        frames = costly_frames(sampled.api, sampled.version, DEFAULT_LIMITS.bytes_of(api_key), most, values)
        found += [one.frame for one in frames if _what(one) == _what(sampled)]
    return found


def _what(made: CostlyFrame) -> str:
    return made.kind.split(" ", 1)[1]


@pytest.mark.parametrize("api_key", list(ApiKey), ids=lambda api_key: api_key.name)
def test_before_authentication_only_a_token_may_be_large(api_key: ApiKey, machine: float) -> None:
    """In each state: a small frame is answered in its shape or closes the connection, a large one closes it."""
    versions = spec_of(api_key)
    for version in {versions.min_version, versions.max_version}:
        frames = chain(
            costly_frames(versions.name, version, 8_192, 8_000, values=("alike", "different")),
            costly_frames(versions.name, version, 20_000, 20_000, values=("alike", "long")),
        )
        for made in frames:
            for handshaken in (False, True):
                step, milliseconds = timed(made.frame, handshaken)
                if milliseconds > NETWORK_BUDGET_MS:
                    # Measured again, because the garbage collector may have run in it.
                    step, milliseconds = timed(made.frame, handshaken)
                assert milliseconds < NETWORK_BUDGET_MS * machine, (made, handshaken)
                if len(made.frame) > 8192 and api_key != ApiKey.SASL_AUTHENTICATE:
                    assert step.failed is not None
                    assert not step.send


def timed(frame: bytes, handshaken: bool) -> tuple[AuthenticationStep, float]:
    """A step of a fresh authentication and its milliseconds of processor time."""
    book = Playbook()
    if handshaken:
        book.handshake("SCRIPTED", 1)
    started = time.thread_time_ns()
    step = book.authenticator.receive(frame)
    return step, (time.thread_time_ns() - started) / 1e6
