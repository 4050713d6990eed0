"""The filter `record_validation`. klamm calls it on a request handler's thread, because it is `blocking`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial
from typing import Any, Final

from klamm import ErrorCode, KafkaError, ListenerContext, RequestContext, RequestFilter
from klamm.filters import RecordAccess
from klamm.wire.api_keys import ApiKey
from klamm.wire.records import Record
from klamm_filters.records.formats import Check, check_of, elements_of
from klamm_filters.records.refused_partitions import Refusal, RefusedPartitions
from klamm_filters.records.topic_names import TopicNames, first_match
from klamm_filters.records.validation_settings import RecordRuleSettings, RecordValidationSettings
from klamm_filters.refusals import Refusals

MAX_RECORD_ERRORS: Final = 1000
MAX_JSON_ELEMENTS: Final = 250_000
"""Maximum number of JSON elements in one batch.

A few KiB of compressed records may have tens of millions of elements. Parsing them would take gigabytes and minutes.
"""


class _Rule:
    def __init__(self, settings: RecordRuleSettings) -> None:
        self._settings = settings
        self._key: Check | None = check_of(settings.key, settings.key_schema)
        self._value: Check | None = check_of(settings.value, settings.value_schema)
        self._reads_keys = settings.key == "json" or settings.key_schema is not None
        self._reads_values = settings.value == "json" or settings.value_schema is not None

    def elements(self, record: Record) -> int:
        """Return the approximate number of JSON elements of a record that must be parsed."""
        keys = elements_of(record.key) if self._reads_keys and record.key else 0
        return keys + (elements_of(record.value) if self._reads_values and record.value else 0)

    def problem(self, record: Record) -> str | None:
        if record.value is None:
            problem = None if self._settings.null_value else "no value"
        else:
            problem = self._value(record.value) if self._value is not None else None
        if problem is not None:
            return f"value: {problem}"
        if record.key is None:
            problem = None if self._settings.null_key else "no key"
        else:
            problem = self._key(record.key) if self._key is not None else None
        return None if problem is None else f"key: {problem}"


class _Rules:
    def __init__(self, settings: RecordValidationSettings) -> None:
        patterns = tuple(rule.topics for rule in settings.rules.values())
        self._rules = [_Rule(rule) for rule in settings.rules.values()]
        self._find = first_match(patterns)
        self._first_is_for_all = bool(patterns) and "*" in patterns[0]

    def find(self, names: TopicNames, topic: Any, context: RequestContext) -> _Rule | None:
        """Return the rule of a topic in a request. Raises KafkaError for an id without a known name."""
        if self._first_is_for_all:
            return self._rules[0]
        number = self._find(names.known(topic.name, topic.topic_id, context))
        return None if number is None else self._rules[number]


class RecordValidation(RequestFilter):
    """The filter `record_validation`. It checks Produce requests, and learns topic names from responses."""

    def __init__(self, settings: RecordValidationSettings) -> None:
        super().__init__(settings)
        self._names = TopicNames()
        self._rules = _Rules(RecordValidationSettings())
        self._refusals = Refusals("record_validation")
        self._refused = RefusedPartitions(self._refusals.note)
        self._records: RecordAccess | None = None

    def open(self, listener: ListenerContext) -> None:
        self._records = RecordAccess(listener)
        self._names.open(listener, self)
        self._rules = _Rules(self.settings)
        self._refusals.open(listener)

    def reload(self) -> None:
        """Read the schemas again."""
        self._rules = _Rules(self.settings)

    def reconfigure(self, settings: RecordValidationSettings) -> bool:
        """Use the new rules from the next request on."""
        self._rules = _Rules(settings)
        self.settings = settings
        return True

    @property
    def api_keys(self) -> Collection[int]:
        return (ApiKey.PRODUCE, *self._names.api_keys)

    @property
    def blocking(self) -> bool:
        # Run on a handler thread, because a large batch would delay the processor's other clients for too long.
        return True

    def on_request(self, message: Any, context: RequestContext) -> Any:
        if context.api_key != ApiKey.PRODUCE:
            return message
        return self._refused.take_out(message, context, partial(self._check, context))

    def on_response(self, response: Any, context: RequestContext) -> Any:
        if context.api_key == ApiKey.PRODUCE:
            return self._refused.put_back(response, context)
        self._names.learn(response)
        return response

    def _check(self, context: RequestContext, topic: Any, partition: Any) -> Refusal | None:
        try:
            rule = self._rules.find(self._names, topic, context)
            if rule is None:
                return None
            wrong = tuple(self._wrong_records(rule, partition))
        except KafkaError as error:
            return Refusal(error.error_code, error.message or "The records cannot be read.")
        if not wrong:
            return None
        return Refusal(ErrorCode.INVALID_RECORD, "One or more records have been rejected", wrong)

    def _wrong_records(self, rule: _Rule, partition: Any) -> Iterator[tuple[int, str]]:
        """Yield the index and a message for each refused record. Raises KafkaError for an invalid batch.

        The error for too many JSON elements is MESSAGE_TOO_LARGE, because producers then split the batch.
        """
        assert self._records is not None
        found = elements = 0
        with self._records.of(partition) as records:
            for index, record in enumerate(records):
                elements += rule.elements(record)
                if elements > MAX_JSON_ELEMENTS:
                    raise KafkaError(
                        ErrorCode.MESSAGE_TOO_LARGE, f"The batch has more than {MAX_JSON_ELEMENTS} elements of JSON."
                    )
                problem = rule.problem(record)
                if problem is not None:
                    yield index, problem
                    found += 1
                    if found == MAX_RECORD_ERRORS:
                        return
