"""Clock, timers, threads, rates and sessions, for parts of any kind. The names listed here are public."""

from klamm.runtime.clock import Clock, SystemClock
from klamm.runtime.purgatory import DelayedOperation, Purgatory
from klamm.runtime.rates import Rate, TokenBucket
from klamm.runtime.scheduler import Scheduler, Timer
from klamm.runtime.sessions import SessionRegistry
from klamm.runtime.workers import Workers

__all__ = [
    "Clock",
    "DelayedOperation",
    "Purgatory",
    "Rate",
    "Scheduler",
    "SessionRegistry",
    "SystemClock",
    "Timer",
    "TokenBucket",
    "Workers",
]
