"""No small frame holds a network thread for long, with any registered filters in front of the broker.

No frame takes more memory than its budget. `test_gateway_cost.py` has the same tests for a gateway.
"""

import contextlib
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.testing import EmbeddedServer
from tests.contract.filter_settings import alone_and_stacked, settings_of
from tests.faults.cost_meter import INLINE, CostMeter
from tests.faults.test_cost import too_large, too_slow

pytestmark = pytest.mark.timeout(1800)

ALL_KINDS = pytest.param(("alike", "different", "existing", "long"), marks=pytest.mark.slow)


@pytest.mark.parametrize("values", [("alike",), ALL_KINDS], ids="-".join)
@pytest.mark.parametrize("names", alone_and_stacked()[-2:], ids="-".join)
def test_no_small_frame_holds_the_network_thread(
    names: tuple[str, ...], values: tuple[str, ...], tmp_path: Path
) -> None:
    with measured(names, tmp_path) as meter:
        assert too_slow(meter, INLINE, every_version=False, values=values) == []


@pytest.mark.slow
@pytest.mark.parametrize("names", alone_and_stacked()[-2:], ids="-".join)
def test_no_frame_takes_more_memory_than_its_budget(names: tuple[str, ...], tmp_path: Path) -> None:
    with measured(names, tmp_path) as meter:
        assert too_large(meter) == []


@contextlib.contextmanager
def measured(names: tuple[str, ...], folder: Path) -> Iterator[CostMeter]:
    """Yield a broker behind these filters. The garbage collector runs once before."""
    with EmbeddedServer(["listeners.default.gates=[]", *settings_of(names, folder)]) as server:
        meter = CostMeter(server, topics=40)
        gc.collect()
        gc.freeze()
        try:
            yield meter
        finally:
            gc.unfreeze()
