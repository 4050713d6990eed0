"""`worst_frame`: the frame of an API that costs a server most for a size, chosen without a search."""

from __future__ import annotations

from klamm.wire.api_keys import spec_of
from tests.faults.cost_meter import DEFAULT_LIMITS
from tests.faults.costly_frames import costly_frames

SIZES = {"small": (64 * 1024, 95), "medium": (64 * 1024, 1500), "large": (16 * 1024 * 1024, 1 << 30)}
"""Sizes in bytes and elements: the most that a network thread handles itself, a large client's request, and the
maximum.
"""


def worst_frame(api_key: int, version: int, size: str) -> bytes:
    """Return the frame with the most bytes among those whose elements are all different or name existing resources."""
    max_bytes, max_elements = SIZES[size]
    max_bytes = min(max_bytes, DEFAULT_LIMITS.max_bytes[api_key])
    most = min(max_elements, DEFAULT_LIMITS.max_elements[api_key])
    made = costly_frames(spec_of(api_key).name, version, max_bytes, most, ("different", "existing"))
    return max((one.frame for one in made), key=len)
