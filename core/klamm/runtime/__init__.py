"""Clocks, timers, threads, rates and the calls of the operating system. The names listed here are public."""

from klamm.runtime.clock import Clock, SystemClock
from klamm.runtime.files import replace_file, sync_directory
from klamm.runtime.platform import PLATFORM, Platform
from klamm.runtime.platform.processes import lower_priority, received_signals
from klamm.runtime.purgatory import DelayedOperation, Purgatory
from klamm.runtime.rates import Rate, TokenBucket
from klamm.runtime.scheduler import Scheduler, Timer
from klamm.runtime.shared_interpreter import switch_threads_often
from klamm.runtime.threads import SYSTEM_THREADS, Joinable, Threads
from klamm.runtime.transitions import IllegalTransitionError, Transitions
from klamm.runtime.workers import Workers

__all__ = [
    "Clock",
    "PLATFORM",
    "SYSTEM_THREADS",
    "DelayedOperation",
    "IllegalTransitionError",
    "Joinable",
    "Platform",
    "Purgatory",
    "Rate",
    "Scheduler",
    "SystemClock",
    "Threads",
    "Timer",
    "TokenBucket",
    "Transitions",
    "Workers",
    "lower_priority",
    "received_signals",
    "replace_file",
    "switch_threads_often",
    "sync_directory",
]
