"""`check_filter` and `check_observer`, which check parts that see requests before and after the handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from klamm.api.context import RequestContext
from klamm.api.filters import Answer, Disconnect, EncodedResponse, Hold, RequestFilter
from klamm.api.observer import RequestEvent, RequestObserver, RequestOutcome, StageTimes
from klamm.shared.principal import KafkaPrincipal
from klamm.testing.conformance.filter_records import RECORD_RULES
from klamm.testing.conformance.life_cycle import PartCase, rules_of
from klamm.testing.conformance.messages import Exchange, exchanges, first_exchange
from klamm.testing.conformance.rules import are_api_keys, ensure, from_threads, run_rules, within_patience
from klamm.wire.api_keys import ApiKey
from klamm.wire.errors import KafkaError
from klamm.wire.struct_base import copy_message

_TIMES: Final = StageTimes(1, 2, 3, 4, 5, 6)


class _FilterCase(PartCase):
    contract = RequestFilter


def check_filter(factory: Callable[[Any], RequestFilter], settings: Any = None, *, other_settings: Any = None) -> None:
    """Check that a request filter keeps its contract; see `check_gate`.

    The filter gets requests and responses of every version of its APIs: with default values, and filled requests, whose
    lists have an element, whose texts are `conformance` and whose batches have a record. It gets records in every
    codec, in several batches and control batches, as bytes and in regions of files, and decompression bombs."""
    run_rules(FILTER_RULES, _FilterCase(factory, settings, other_settings))


def _keys(part: RequestFilter) -> list[int]:
    return [int(key) for key in (ApiKey if part.api_keys is None else part.api_keys)]


def names_its_apis(case: _FilterCase) -> None:
    """`api_keys` is None or has keys of APIs, and `blocking` is True or False; both are read once, after `open`."""
    with case.opened() as part:
        first, again = part.api_keys, part.api_keys
        ensure(first is None or are_api_keys(first), f"api_keys is {first!r}")
        ensure(first is None or set(first) == set(again), f"api_keys is {first!r}, and then {again!r}")
        ensure(part.blocking is True or part.blocking is False, f"blocking is {part.blocking!r}")


def _exchanges(case: _FilterCase, part: RequestFilter) -> Iterator[tuple[str, Exchange, RequestContext]]:
    """Yield the exchanges of a filter's APIs, each with the name of its API and the context of its request."""
    for key in _keys(part):
        for exchange in exchanges(key):
            context = case.listener.request(exchange.request, exchange.version)
            yield f"{ApiKey(key).name} v{exchange.version}", exchange, context


def _passed(outcome: Any) -> Any:
    """Return the message that a filter passes on; for a Hold, the held message."""
    return outcome.message if isinstance(outcome, Hold) else outcome


def passes_requests_of_the_same_class(case: _FilterCase) -> None:
    """`on_request` returns a request of the class that it got, an Answer with a response, or a Hold; or it raises
    KafkaError or Disconnect."""
    with case.opened() as part:
        for name, exchange, context in _exchanges(case, part):
            try:
                outcome = part.on_request(copy_message(exchange.request), context)
            except (KafkaError, Disconnect):
                continue
            passed = _passed(outcome)
            if isinstance(passed, Answer):
                fits = isinstance(passed.response, (type(exchange.response), EncodedResponse, Hold))
            else:
                fits = isinstance(passed, type(exchange.request))
            ensure(fits, f"{name}: on_request returned {outcome!r}")


def passes_responses_of_the_same_class(case: _FilterCase) -> None:
    """`on_response` returns a response of the class that it got, or a Hold; or it raises KafkaError or Disconnect."""
    with case.opened() as part:
        for name, exchange, context in _exchanges(case, part):
            try:
                outcome = part.on_response(copy_message(exchange.response), context)
            except (KafkaError, Disconnect):
                continue
            fits = isinstance(_passed(outcome), (type(exchange.response), EncodedResponse))
            ensure(fits, f"{name}: on_response returned {outcome!r}")


def passes_what_can_be_encoded(case: _FilterCase) -> None:
    """Messages that a filter passes on can be encoded in the version of the request."""
    with case.opened() as part:
        for _name, exchange, context in _exchanges(case, part):
            for step, message in ((part.on_request, exchange.request), (part.on_response, exchange.response)):
                try:
                    passed = _passed(step(copy_message(message), context))
                except (KafkaError, Disconnect):
                    continue
                (passed.response if isinstance(passed, Answer) else passed).encode(exchange.version)


def _both(part: RequestFilter, exchange: Exchange, context: Any) -> None:
    for step, message in ((part.on_request, exchange.request), (part.on_response, exchange.response)):
        try:
            step(copy_message(message), context)
        except (KafkaError, Disconnect):
            continue


def does_not_block_unless_it_says_so(case: _FilterCase) -> None:
    """A filter that is not `blocking` returns at once."""
    with case.opened() as part:
        if _keys(part) and not part.blocking:
            _name, exchange, context = next(_exchanges(case, part))
            within_patience("a call", lambda: _both(part, exchange, context))


def filters_from_several_threads(case: _FilterCase) -> None:
    """Requests and responses come from several threads concurrently."""
    with case.opened() as part:
        if _keys(part):
            _name, exchange, context = next(_exchanges(case, part))
            from_threads("on_request and on_response", lambda number: _both(part, exchange, context))


def keeps_no_message(case: _FilterCase) -> None:
    """Two requests get separate messages: the message passed on for one request is never passed on for another."""
    with case.opened() as part:
        for key in _keys(part):
            for exchange in list(exchanges(key))[-1:]:
                passed = []
                for _ in range(2):
                    context = case.listener.request(exchange.request, exchange.version)
                    try:
                        outcome = _passed(part.on_request(copy_message(exchange.request), context))
                    except (KafkaError, Disconnect):
                        continue
                    passed.append(outcome.response if isinstance(outcome, Answer) else outcome)
                ensure(len(passed) < 2 or passed[0] is not passed[1], f"{ApiKey(key).name}: it is the same object")


FILTER_RULES: Final = (*rules_of(_FilterCase), *RECORD_RULES)


@dataclass(slots=True)
class _Story:
    """The events of one connection, in the order in which a server reports them."""

    case: PartCase
    observer: RequestObserver

    def events(self) -> list[RequestEvent]:
        exchange = first_exchange()
        context = self.case.listener.request(exchange.request, exchange.version)
        return [
            RequestEvent(context, outcome, code, request, response, 10, _TIMES)
            for outcome in RequestOutcome
            for code, request, response in ((0, exchange.request, exchange.response), (35, None, None))
        ]

    def run(self, observer: RequestObserver | None = None) -> None:
        one = observer or self.observer
        connection = self.case.listener.connection(KafkaPrincipal("alice"))
        one.connection_refused(connection.client_address, "too_many", "detail")
        one.authentication_failed(connection, "wrong password", False)
        one.connection_closed(connection, "authentication failed")
        one.authenticated(connection, False)
        one.connection_opened(connection)
        events = self.events()
        one.completed(events[0])
        one.completed_many(events)
        one.authenticated(connection, True)
        one.authentication_failed(connection, "wrong token", True)
        one.session_expired(connection)
        one.connection_closed(connection, "expired")


class _ObserverCase(PartCase):
    contract = RequestObserver


def check_observer(
    factory: Callable[[Any], RequestObserver], settings: Any = None, *, other_settings: Any = None
) -> None:
    """Check that a request observer keeps its contract; see `check_gate`."""
    run_rules(OBSERVER_RULES, _ObserverCase(factory, settings, other_settings))


def takes_what_happens(case: _ObserverCase) -> None:
    """Every event, in the order of a connection's life, is accepted without an exception and without blocking."""
    with case.opened() as observer:
        within_patience("an event", _Story(case, observer).run)


def announces_apis(case: _ObserverCase) -> None:
    """`announced_api_keys` has keys of APIs. `starting` accepts their requests, and may raise only KafkaError."""
    with case.opened() as observer:
        keys = observer.announced_api_keys
        ensure(are_api_keys(keys), f"announced_api_keys is {keys!r}")
        for key in keys:
            exchange = first_exchange(key)
            try:
                observer.starting(exchange.request, case.listener.request(exchange.request, exchange.version))
            except KafkaError:
                continue


def changes_nothing(case: _ObserverCase) -> None:
    """An observer changes neither the messages nor the context of a request."""
    with case.opened() as observer:
        story = _Story(case, observer)
        events = story.events()
        event = events[0]
        request, response = repr(event.request), repr(event.response)
        context = (event.context.client_id, event.context.principal, event.context.throttle_time_ms)
        observer.completed_many(events)
        if event.context.api_key in set(observer.announced_api_keys):
            observer.starting(event.request, event.context)
        ensure(repr(event.request) == request, f"the request became {event.request!r}")
        ensure(repr(event.response) == response, f"the response became {event.response!r}")
        after = (event.context.client_id, event.context.principal, event.context.throttle_time_ms)
        ensure(after == context, f"{context} became {after}")


def is_notified_from_several_threads(case: _ObserverCase) -> None:
    """Events of different connections come from several threads concurrently."""
    with case.opened() as observer:
        from_threads("events", lambda number: _Story(case, observer).run())


OBSERVER_RULES: Final = rules_of(_ObserverCase)
