"""Numbers that several modules need."""

from __future__ import annotations

from typing import Final

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
NS_PER_MS: Final = 1_000_000
