"""`PLATFORM`: the calls that some operating systems lack, each with a fallback. They are chosen once, at import."""

from klamm.runtime.platform.systems import PLATFORM, Platform, find_platform

__all__ = ["PLATFORM", "Platform", "find_platform"]
