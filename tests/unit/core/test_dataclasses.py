"""A quick dataclass is what Python's own would be."""

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from typing import ClassVar

import pytest

import klamm.dataclasses
from klamm.config.server_settings import ListenerSettings
from klamm.shared.principal import KafkaPrincipal

BOTH = pytest.mark.parametrize("dataclass", [dataclasses.dataclass, klamm.dataclasses.dataclass], ids=["std", "quick"])


def point(dataclass, **options):
    """A class of every kind of field."""

    @dataclass(**options)
    class Point:
        """A point."""

        kind: ClassVar[str] = "point"
        x: int
        y: int = 2
        tags: list[str] = dataclasses.field(default_factory=list)
        secret: str = dataclasses.field(default="s", repr=False)
        note: str = dataclasses.field(default="n", compare=False)
        total: int = dataclasses.field(init=False, default=7)
        made: dict[str, int] = dataclasses.field(init=False, default_factory=dict)
        last: int = dataclasses.field(default=9, kw_only=True)

    return Point


OPTIONS = [
    {},
    {"frozen": True},
    {"slots": True},
    {"frozen": True, "slots": True},
    {"slots": True, "eq": False},
    {"frozen": True, "slots": True, "kw_only": True},
    {"frozen": True, "order": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_it_is_what_pythons_is(options):
    theirs, ours = point(dataclasses.dataclass, **options), point(klamm.dataclasses.dataclass, **options)
    assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
    assert ours.__match_args__ == theirs.__match_args__
    assert repr(ours.__dataclass_params__) == repr(theirs.__dataclass_params__)
    assert getattr(ours, "__slots__", None) == getattr(theirs, "__slots__", None)
    assert (ours.__hash__ is None) == (theirs.__hash__ is None)
    assert [field.name for field in dataclasses.fields(ours)] == [field.name for field in dataclasses.fields(theirs)]
    for given in ({"x": 1}, {"x": 1, "y": 5, "tags": ["a"], "secret": "q", "note": "m", "last": 3}):
        mine, yours = ours(**given), theirs(**given)
        assert repr(mine) == repr(yours)
        assert dataclasses.asdict(mine) == dataclasses.asdict(yours)
        assert mine != yours
        assert (mine == ours(**given)) == (yours == theirs(**given))
        assert (mine == ours(**given | {"note": "other"})) == (yours == theirs(**given | {"note": "other"}))
        assert mine != ours(**given | {"x": 2})
        assert dataclasses.replace(mine, y=8).y == 8
        assert vars_of(copy.copy(mine)) == vars_of(mine)
        assert mine.made is not ours(**given).made
    for made in (ours, theirs):
        with pytest.raises(TypeError):
            made()
        with pytest.raises(TypeError):
            made(x=1, total=3)


def vars_of(one):
    return {field.name: getattr(one, field.name) for field in dataclasses.fields(one)}


@pytest.mark.parametrize("slots", [True, False])
def test_a_frozen_one_cannot_be_changed_and_is_a_key(slots):
    made = klamm.dataclasses.dataclass(frozen=True, slots=slots)(
        type("Pair", (), {"__annotations__": {"left": int, "right": str}, "__doc__": "Two.", "right": "r"})
    )
    pair = made(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'left'"):
        pair.left = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'left'"):
        del pair.left
    assert {pair: 1}[made(1, "r")] == 1
    assert pair != made(2, "r")
    assert pair != (1, "r")


@BOTH
def test_one_may_extend_another(dataclass):
    @dataclass(frozen=True, kw_only=True)
    class Base:
        first: int = 1

        def __eq__(self, other: object) -> bool:
            return self is other

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Derived(Base):
        second: int = 2
        after: list[int] = dataclasses.field(default_factory=list)

        def __post_init__(self) -> None:
            self.after.append(self.first)

    assert Derived(first=5).after == [5]
    assert (Derived(first=5).first, Derived().second) == (5, 2)
    assert hash(Base()) != 0
    assert Base() != Base()
    assert Derived() == Derived()
    with pytest.raises(dataclasses.FrozenInstanceError):
        Derived().first = 3
    with pytest.raises(TypeError):

        @dataclass
        class Thawed(Base):
            third: int = 3


def test_pythons_may_extend_a_quick_one():
    @dataclasses.dataclass(frozen=True)
    class Settings(ListenerSettings):
        """Of a plugin."""

        more: int = 3

    assert Settings(backlog=7).backlog == 7
    assert Settings().more == 3


def test_own_methods_stay():
    @klamm.dataclasses.dataclass
    class Named:
        name: str

        def __repr__(self) -> str:
            return "own"

        def __hash__(self) -> int:
            return 5

    assert repr(Named("x")) == "own"
    assert hash(Named("x")) == 5
    assert Named("x") == Named("x")


def test_copies_and_pickles_are_equal():
    principal = KafkaPrincipal("User", "alice")
    for made in (copy.copy(principal), copy.deepcopy(principal), pickle.loads(pickle.dumps(principal))):
        assert made == principal
        assert type(made) is KafkaPrincipal


def test_one_without_fields():
    @klamm.dataclasses.dataclass(frozen=True, slots=True)
    class Nothing:
        """Nothing."""

    assert Nothing() == Nothing()
    assert repr(Nothing()).endswith("Nothing()")
    assert hash(Nothing()) == hash(())


def test_a_method_of_the_class_can_be_the_default_of_a_field():
    @klamm.dataclasses.dataclass(slots=True)
    class Called:
        call: Callable[[], int] = int

    assert Called().call() == 0
