"""`route`: marks the methods that answer requests of the HTTP API. `Operation`: a marked method with its parameters."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeVar, get_args, get_type_hints

from klamm.config import did_you_mean
from klamm_control.schemas import Components, Schema, converted, members_of, problem_of, schema_of

_Function = TypeVar("_Function", bound=Callable[..., Any])
_ROUTE: Final = "route"


class Route(NamedTuple):
    """A method and a path, e.g. `/topics/{topic}`, whose names in braces are the first parameters."""

    method: str
    path: str


def route(method: str, path: str) -> Callable[[_Function], _Function]:
    """Return a decorator for the method that answers requests of a path."""

    def mark(function: _Function) -> _Function:
        function.__dict__[_ROUTE] = Route(method, path)
        return function

    return mark


class Parameter(NamedTuple):
    """A parameter of an operation, in the path or as an option."""

    name: str
    schema: Schema
    is_required: bool
    default: object = None


class Signature(NamedTuple):
    """The signature of a method. `answer` is the schema of its result.

    `body` is the schema of the request's body, if the method takes the members of a typed dictionary (`**rule:
    Unpack[Rule]`). `components` are the schemas to which the others refer.
    """

    parameters: list[Parameter]
    answer: Schema
    body: Schema | None
    components: Components


class Operation:
    """A marked method. Its signature and docstring give the parameters, the answer and the summary."""

    def __init__(self, function: Callable[..., Any], route: Route) -> None:
        self.function = function
        self.method, self.path = route
        self.words = tuple(word for word in route.path.split("/") if word)
        first, *others = function.__name__.split("_")
        self.name = "".join([first, *(word.title() for word in others)])

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    @property
    def description(self) -> str:
        """The docstring below its first line."""
        return (inspect.getdoc(self.function) or "").partition("\n")[2].strip()

    def fits(self, words: tuple[str, ...]) -> bool:
        """Return True if the words of a path belong to this operation."""
        return len(words) == len(self.words) and all(
            _is_name(want) or want == word for want, word in zip(self.words, words, strict=True)
        )

    @functools.cached_property
    def in_path(self) -> list[Parameter]:
        """The parameters in the path, in order."""
        names = [word[1:-1] for word in self.words if _is_name(word)]
        found = {each.name: each for each in self.signature.parameters}
        return [found[name] for name in names]

    @functools.cached_property
    def options(self) -> list[Parameter]:
        """Return the other parameters, which GET and DELETE have in the query, and POST in the body."""
        names = {each.name for each in self.in_path}
        return [each for each in self.signature.parameters if each.name not in names]

    @functools.cached_property
    def signature(self) -> Signature:
        """Return the signature of the method."""
        hints = get_type_hints(self.function, include_extras=True)
        components: Components = {}
        body: Schema | None = None
        answer = schema_of(hints.pop("return"), components)
        found = []
        for one in list(inspect.signature(self.function).parameters.values())[1:]:
            if one.kind is inspect.Parameter.VAR_KEYWORD:
                (kind,) = get_args(hints[one.name])
                body = schema_of(kind, components)
                found += [Parameter(name, *member) for name, member in members_of(kind, components).items()]
                continue
            is_required = one.default is inspect.Parameter.empty
            default = None if is_required else one.default
            found.append(Parameter(one.name, schema_of(hints[one.name], components), is_required, default))
        return Signature(found, answer, body, components)

    def arguments(self, words: tuple[str, ...], query: Mapping[str, str], body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments for the method. Raises ValueError for an option that is unknown, missing, or invalid."""
        texts = [word for want, word in zip(self.words, words, strict=True) if _is_name(want)]
        found = {each.name: _of_text(each, text) for each, text in zip(self.in_path, texts, strict=True)}
        known = {each.name: each for each in self.options}
        unknown = next((name for name in (*query, *body) if name not in known), None)
        if unknown is not None:
            raise ValueError(f'there is no "{unknown}" here{did_you_mean(unknown, known)}')
        for each in self.options:
            if each.name in body:
                problem = problem_of(body[each.name], each.schema)
                if problem:
                    raise ValueError(f'"{each.name}" {problem}')
                found[each.name] = body[each.name]
            elif each.name in query:
                found[each.name] = _of_text(each, query[each.name])
            elif each.is_required:
                raise ValueError(f'"{each.name}" is required')
        return found


def operations_of(kind: type) -> Iterator[Operation]:
    """Yield an operation for each marked method of a class, in the order of the class."""
    for function in vars(kind).values():
        found = getattr(function, _ROUTE, None)
        if isinstance(found, Route):
            yield Operation(function, found)


def _is_name(word: str) -> bool:
    return word.startswith("{")


def _of_text(parameter: Parameter, text: str) -> Any:
    try:
        return converted(text, parameter.schema)
    except ValueError as error:
        raise ValueError(f'"{parameter.name}" {error}') from error
