"""`PLATFORM`: the calls that not every operating system has, each with its fallback; chosen once, at import."""

from klamm.runtime.platform.systems import PLATFORM, Platform, find_platform

__all__ = ["PLATFORM", "Platform", "find_platform"]
