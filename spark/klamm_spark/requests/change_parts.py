"""The parts from which `admin_changes` and `group_changes` make descriptions of state changes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from klamm.wire.api_keys import ApiKey
from klamm_spark.requests.resources import Place, Resource, TopicNames

_SENSITIVE: Final = re.compile(r"password|secret|credential|jaas|private|token|\.key$", re.IGNORECASE)
SENSITIVE_VALUE: Final = "(sensitive)"

Names: TypeAlias = TopicNames
Describe: TypeAlias = Callable[[Any, Any, Names], Iterable[Resource]]
"""A function that returns the resources that a request changes, from the request, the response (or None) and topic
names.
"""


class StateChange(NamedTuple):
    """The description of an API. `describe` yields resources, which have these `types` and `attributes`.

    The response is None before the execution, and after an execution without an answer. In names of attributes, `.N`
    stands for a partition's number, and `.KEY` for the name of a configuration or a quota.
    """

    types: tuple[str, ...]
    attributes: tuple[str, ...]
    describe: Describe


class StateChanges(dict[ApiKey, StateChange]):
    """The descriptions by API. The decorator `of` adds functions, and `read` adds APIs for which the request's fields
    are enough.
    """

    def of(self, *api_keys: ApiKey, types: str, attributes: str = "") -> Callable[[Describe], Describe]:
        """Return a decorator that makes a function the description of these APIs. `StateChange` explains the names."""

        def add(describe: Describe) -> Describe:
            change = StateChange(tuple(types.split()), tuple(attributes.split()), describe)
            self.update(dict.fromkeys(api_keys, change))
            return describe

        return add

    def read(self, *api_keys: ApiKey, rows: Sequence[str]) -> None:
        """Add descriptions of these APIs, from rows of a `Place`."""
        places = [Place(row) for row in rows]
        types = dict.fromkeys(place.type for place in places)
        attributes = dict.fromkeys(name for place in places for name in place.attributes)

        def describe(request: Any, response: Any, topics: Names) -> list[Resource]:
            return [resource for place in places for resource in place.resources(request, topics)]

        self.update(dict.fromkeys(api_keys, StateChange(tuple(types), tuple(attributes), describe)))


def resource_of(type: str, name: str | None, /, **attributes: object) -> Resource:
    """Return a resource with the attributes that have a value, see `Resource.add_given`."""
    resource = Resource(type, name or "")
    for key, value in attributes.items():
        resource.add_given(key, value)
    return resource


@lru_cache(maxsize=1024)
def name_of(kind: type[Any], code: int) -> str:
    """Return the name of a code of an enum, or the number itself if the enum lacks it."""
    # Cached, because clients choose the codes, and an enum takes microseconds for a code that it lacks.
    try:
        return str(kind(code).name)
    except ValueError:
        return str(code)


def config_value(name: str, value: str | None) -> str | None:
    """Return the recorded value of a configuration. The value of a secret, judged by its name, is replaced."""
    return SENSITIVE_VALUE if value is not None and _SENSITIVE.search(name) else value


def add_changed_values(
    changed_values: Sequence[tuple[str, str, str, str | None, str | None]], resources: Sequence[Resource]
) -> None:
    """Add the old and the new values to attributes. A value that was removed together with others gets an attribute."""
    by_resource: dict[tuple[str, str], dict[str, tuple[str | None, str | None]]] = {}
    for kind, name, key, old, new in changed_values:
        values = by_resource.setdefault((kind, name), {})
        values[key] = config_value(key, old), config_value(key, new)
    for resource in resources:
        if resource.changed_as is None:
            continue
        kind, name, prefix = resource.changed_as
        resource.changed = {prefix + key: values for key, values in by_resource.get((kind, name), {}).items()}
        asked = {attribute for attribute, _, _ in resource.attributes or ()}
        for attribute in resource.changed.keys() - asked:
            resource.add(attribute, None, "DELETE")


def succeeded(response: Any) -> Any:
    """Return a successful response, or None if there is none or if it is an error."""
    return response if response is not None and response.error_code == 0 else None
