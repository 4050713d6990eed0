"""`check_api_set` and `check_extension`, which check handler sets and server extensions."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from klamm.api.api_set import ApiHandler, ApiSet
from klamm.api.context import ServerContext
from klamm.api.extension import ServerExtension
from klamm.api.filters import Disconnect
from klamm.api.pending import LATER, NO_RESPONSE, NotInlineError, Pending
from klamm.shared.features import Features
from klamm.testing.conformance.life_cycle import ServerPartCase, rules_of
from klamm.testing.conformance.messages import Exchange, exchanges
from klamm.testing.conformance.rules import ensure, run_rules, within_patience
from klamm.wire.api_keys import ApiKey, find_spec, load
from klamm.wire.chunks import close_chunks
from klamm.wire.errors import KafkaError
from klamm.wire.struct_base import copy_message


class _ApiSetCase(ServerPartCase):
    """A handler set under test. Each set is opened in a new directory below `base`, or in `data_dir` if that is set."""

    contract = ApiSet
    base: Path
    data_dir: Path | None = None

    def host(self) -> Any:
        super().host()
        services = self.listener.services
        folder = self.data_dir or Path(tempfile.mkdtemp(dir=self.base))
        listeners = {self.listener.context.name: self.listener.context}
        return ServerContext(folder, services.clock, services.scheduler, listeners, os.urandom, True, services)

    @contextlib.contextmanager
    def serving(self) -> Iterator[tuple[ApiSet, list[ApiHandler]]]:
        """Yield an open set that has been notified of its listener, and its handlers."""
        with self.opened() as part:
            handlers = list(part.handlers())
            part.listener_opened(self.listener.context)
            yield part, handlers


def check_api_set(factory: Callable[[Any], ApiSet], settings: Any = None, *, other_settings: Any = None) -> None:
    """Check that a handler set keeps its contract; see `check_gate`.

    Each of its APIs gets two requests of every version: one with default values, whose lists are empty, and one whose
    lists have an element, whose texts are `conformance` and whose batches have a record."""
    with tempfile.TemporaryDirectory(prefix="klamm-conformance-") as folder:
        case = _ApiSetCase(factory, settings, other_settings)
        case.base = Path(folder)
        run_rules(API_SET_RULES, case)


def names_the_apis_that_it_serves(case: _ApiSetCase) -> None:
    """`handlers` has one ApiHandler for each API, with Kafka's key and name, and versions that can be decoded."""
    with case.serving() as (_part, handlers):
        ensure(handlers, "there is no handler")
        keys = [one.api_key for one in handlers]
        ensure(len(keys) == len(set(keys)), f"an API is served twice: {sorted(keys)}")
        for one in handlers:
            spec = find_spec(one.api_key)
            ensure(spec is not None and spec.name == one.name, f"API {one.api_key} is not {one.name}")
            served, known = range(one.min_version, one.max_version + 1), load(one.api_key).DECODABLE
            fits = len(served) > 0 and served[0] in known and served[-1] in known
            ensure(fits, f"{one.name} is served in {served}, and can be decoded in {known}")
            ensure(one.inline_max_bytes >= 0, f"{one.name}: inline_max_bytes is {one.inline_max_bytes}")


def describes_itself(case: _ApiSetCase) -> None:
    """`describe` returns one line of text, and `features` returns Features."""
    with case.serving() as (part, _handlers):
        text, features = part.describe(), part.features()
        ensure(isinstance(text, str) and "\n" not in text, f"describe returned {text!r}")
        ensure(isinstance(features, Features), f"features returned {features!r}")


def _requests(handlers: list[ApiHandler]) -> Iterator[tuple[ApiHandler, Exchange]]:
    for one in handlers:
        for exchange in exchanges(one.api_key, one.min_version, one.max_version):
            yield one, exchange


def answers_every_version(case: _ApiSetCase) -> None:
    """A handler returns a response of its API, `context.later()` or `context.no_response()`, or raises KafkaError,
    whatever the request."""
    with case.serving() as (_part, handlers):
        for one, exchange in _requests(handlers):
            context = case.listener.request(exchange.request, exchange.version)
            try:
                answer = one.handle(exchange.request, context)
            except (KafkaError, Disconnect, NotInlineError):
                continue
            fits = isinstance(answer, (Pending, type(exchange.response)))
            ensure(fits, f"{one.name} v{exchange.version} returned {answer!r}")


def answers_what_acks_wants(case: _ApiSetCase) -> None:
    """A Produce with acks=0 gets `context.no_response()`, others get a response. A refusal closes the connection."""
    with case.serving() as (_part, handlers):
        for one, exchange in _requests([each for each in handlers if each.api_key == ApiKey.PRODUCE]):
            for acks in (0, 1, -1):
                request = copy_message(exchange.request)
                request.acks = acks
                try:
                    answer = one.handle(request, case.listener.request(request, exchange.version))
                except (KafkaError, Disconnect, NotInlineError):
                    continue
                fits = answer is LATER or (answer is NO_RESPONSE) == (acks == 0)
                ensure(fits, f"{one.name} v{exchange.version} with acks={acks} returned {answer!r}")


def does_not_block_unless_it_says_so(case: _ApiSetCase) -> None:
    """A handler that is not `blocking` returns at once."""
    with case.serving() as (_part, handlers):
        for one, exchange in _requests([each for each in handlers if not each.blocking]):
            context = case.listener.request(exchange.request, exchange.version)

            def call(one: ApiHandler = one, exchange: Exchange = exchange, context: Any = context) -> None:
                with contextlib.suppress(KafkaError, Disconnect, NotInlineError):
                    one.handle(exchange.request, context)

            within_patience(f"{one.name} v{exchange.version}", call)


def answers_can_be_encoded(case: _ApiSetCase) -> None:
    """A response can be encoded in the version of its request."""
    with case.serving() as (_part, handlers):
        for one, exchange in _requests(handlers):
            context = case.listener.request(exchange.request, exchange.version)
            try:
                answer = one.handle(exchange.request, context)
            except (KafkaError, Disconnect, NotInlineError):
                continue
            if hasattr(answer, "encode_chunks"):
                close_chunks(answer.encode_chunks(exchange.version))
            elif not isinstance(answer, Pending):
                answer.encode(exchange.version)


def forgets_connections(case: _ApiSetCase) -> None:
    """`connection_closed` is called once for each connection that has ended, and raises nothing."""
    with case.serving() as (part, handlers):
        for one, exchange in list(_requests(handlers))[:20]:
            context = case.listener.request(exchange.request, exchange.version)
            with contextlib.suppress(KafkaError, Disconnect, NotInlineError):
                one.handle(exchange.request, context)
            part.connection_closed(context.connection)


def goes_on_where_it_stopped(case: _ApiSetCase) -> None:
    """A closed set can be opened again with the same directory."""
    case.data_dir = Path(tempfile.mkdtemp(dir=case.base))
    try:
        for _ in range(2):
            answers_can_be_encoded(case)
    finally:
        case.data_dir = None


API_SET_RULES: Final = rules_of(_ApiSetCase)


class _ExtensionCase(ServerPartCase):
    contract = ServerExtension


def check_extension(
    factory: Callable[[Any], ServerExtension], settings: Any = None, *, other_settings: Any = None
) -> None:
    """Check that a server extension keeps its contract; see `check_gate`."""
    run_rules(EXTENSION_RULES, _ExtensionCase(factory, settings, other_settings))


def stands_by_a_server(case: _ExtensionCase) -> None:
    """`ready` and `stopping` return within seconds, and `stopping` may come without `ready`, because a start may
    fail.
    """
    for started in (True, False):
        with case.opened() as part:
            if started:
                within_patience("ready", part.ready)
            within_patience("stopping", part.stopping)


def describes_where_it_is(case: _ExtensionCase) -> None:
    """`describe` returns one line of text, and `ready_file_entries` a mapping that JSON can hold."""
    with case.opened() as part:
        part.ready()
        text, entries = part.describe(), part.ready_file_entries()
        ensure(isinstance(text, str) and "\n" not in text, f"describe returned {text!r}")
        written = json.loads(json.dumps(dict(entries)))
        ensure(written == dict(entries), f"ready_file_entries returned {entries!r}")
        part.stopping()


EXTENSION_RULES: Final = rules_of(_ExtensionCase)
