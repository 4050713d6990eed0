"""`DelayedOperation` and `Purgatory`, for responses that wait for data, group members or time.

They follow Kafka's `DelayedOperation` and `DelayedOperationPurgatory`. A handler that would have to wait adds a delayed
operation to a purgatory and returns `context.later()`, so it blocks no thread.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Hashable, Iterable
from typing import Any, Protocol

from klamm.runtime.scheduler import Scheduler, Timer

log = logging.getLogger("klamm.handlers")


class Answerable(Protocol):
    """A request that an operation answers: a `RequestContext`."""

    def respond(self, response: Any) -> None: ...


class DelayedOperation:
    """An operation that completes once: when its condition holds, when it is forced, or when it expires.

    Subclasses define `try_complete`, `on_complete` and, if expiry needs more, `on_expiration`. Several threads may try
    to complete an operation at once; only one of them runs `on_complete`. At expiry, the scheduler's thread runs
    `on_expiration` and then `on_complete`.

    The operation expires after `delay_ms`. `request` is the request that waits. If a method raises, the operation ends,
    and the exception becomes the answer to the request. Without a request the exception is logged. Other operations are
    not affected.
    """

    __slots__ = ("_completed", "_keys", "_lock", "_purgatory", "_timer", "_trying", "delay_ms", "request")

    def __init__(self, delay_ms: float, request: Answerable | None = None) -> None:
        self.delay_ms = delay_ms
        self.request = request
        self._completed = False
        # Protects `_completed`, so that only one caller completes the operation.
        self._lock = threading.Lock()
        # Held by the thread that tries to complete the operation. Reentrant, because a try may lead to another try.
        self._trying = threading.RLock()
        self._timer: Timer | None = None
        self._purgatory: Purgatory | None = None
        self._keys: tuple[Hashable, ...] = ()

    @property
    def completed(self) -> bool:
        """Return True if a thread has claimed `on_complete`."""
        return self._completed

    def try_complete(self) -> bool:
        """If the condition holds, call `force_complete` and return its result; else return False.

        Never called by two threads concurrently.
        """
        raise NotImplementedError

    def try_complete_for(self, key: Hashable) -> bool:  # noqa: ARG002
        """Do the same as `try_complete` after a change of this key.

        An operation that watches many keys may override this, and check only this key.
        """
        return self.try_complete()

    def on_complete(self) -> None:
        """Send the response. Called once."""
        raise NotImplementedError

    def on_expiration(self) -> None:
        """Called before `on_complete` if the delay is over and the condition has not held. Does nothing here."""

    def force_complete(self) -> bool:
        """Complete the operation now, even if the condition does not hold. Return False if it was complete already."""
        if not self._claim():
            return False
        try:
            self.on_complete()
        except Exception as error:
            self._fail(error)
        return True

    def safe_try_complete(self) -> bool:
        """Call `try_complete` with the operation's lock held, and return its result; False if it was complete."""
        if self._completed:
            return False
        with self._trying:
            return not self._completed and self.try_complete()

    def attempt(self, key: Hashable = None) -> bool:
        """Try to complete the operation because another request has changed `key`.

        An exception ends the operation, and is not raised in the other request.
        """
        if self._completed:
            return False
        try:
            with self._trying:
                return not self._completed and (self.try_complete() if key is None else self.try_complete_for(key))
        except Exception as error:
            if self._claim():
                self._fail(error)
            return True

    def _fail(self, error: Exception) -> None:
        if self.request is not None:
            # A RuntimeError means that the operation has failed after the response was sent.
            with contextlib.suppress(RuntimeError):
                self.request.respond(error)
                return
        log.error("delayed operation %r failed", self, exc_info=error)

    def _claim(self) -> bool:
        with self._lock:
            if self._completed:
                return False
            self._completed = True
        timer = self._timer
        if timer is not None:
            timer.cancel()
        if self._purgatory is not None:
            self._purgatory.forget(self, self._keys)
        return True

    def watched_by(self, purgatory: Purgatory, keys: tuple[Hashable, ...]) -> None:
        """Store the purgatory and the keys, so that completion ends the watch."""
        self._keys = keys
        self._purgatory = purgatory

    def expire(self) -> None:
        """Complete the operation because its delay is over. Called on the scheduler's thread."""
        if self._claim():
            try:
                self.on_expiration()
                self.on_complete()
            except Exception as error:
                self._fail(error)

    def arm(self, scheduler: Scheduler) -> None:
        """Start the timer that expires the operation."""
        self._timer = scheduler.schedule(self.delay_ms, self.expire)
        if self._completed:
            self._timer.cancel()


class Purgatory:
    """Delayed operations that wait, under the keys whose changes may complete them. Any thread may call the methods.

    A handler set creates it. Handlers add operations. Code that changes what a key names, e.g. a partition, calls
    `check_and_complete` with the key.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        # Protects the watchers of each key.
        self._lock = threading.Lock()
        self._watchers: dict[Hashable, dict[DelayedOperation, None]] = {}

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> bool:
        """Complete the operation now and return True, or watch it under `keys` until its delay is over.

        Raises the exceptions of the first try. The request is answered with any later exception.
        """
        if operation.safe_try_complete():
            return True
        keys = tuple(keys)
        with self._lock:
            for key in keys:
                self._watchers.setdefault(key, {})[operation] = None
        operation.watched_by(self, keys)
        # Try again, because a key may have changed between the first try and the watch.
        if operation.attempt() or operation.completed:
            self.forget(operation, keys)
            return True
        operation.arm(self._scheduler)
        return False

    def check_and_complete(self, key: Hashable) -> int:
        """Try every operation that watches `key`; return the number that completed."""
        if key not in self._watchers:
            return 0
        with self._lock:
            watchers = self._watchers.get(key)
            if watchers is None:
                return 0
            operations = list(watchers)
        return sum(operation.attempt(key) for operation in operations)

    def expire_soon(self, key: Hashable) -> None:
        """Expire every operation that watches `key`, on the scheduler's thread, because its client has disconnected."""
        if key in self._watchers:
            with self._lock:
                operations = list(self._watchers.get(key, ()))
            for operation in operations:
                self._scheduler.schedule(0, operation.expire)

    def forget(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> None:
        """Stop watching an operation that is complete."""
        with self._lock:
            for key in keys:
                watchers = self._watchers.get(key)
                if watchers is not None:
                    watchers.pop(operation, None)
                    if not watchers:
                        del self._watchers[key]

    def watched(self) -> int:
        """Return the number of watched operations, counted per key."""
        with self._lock:
            return sum(len(watchers) for watchers in self._watchers.values())
