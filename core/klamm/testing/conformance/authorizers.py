"""`check_authorizer`, which checks parts that decide about principals and resources."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from klamm.api.acl import AclBinding, AclBindingFilter, AclOperation, AclPermission, PatternType, ResourceType, Verdict
from klamm.api.authorizer import Authorizer
from klamm.api.context import RequestContext
from klamm.api.filters import Release
from klamm.shared.principal import ANONYMOUS, KafkaPrincipal
from klamm.testing.conformance import rules
from klamm.testing.conformance.life_cycle import PartCase, rules_of
from klamm.testing.conformance.rules import ensure, from_threads, run_rules, within_patience
from klamm.wire.errors import KafkaError
from klamm.wire.messages.metadata import MetadataRequest

_NAMES: Final = ("orders", "", "ümläut", "*", "a" * 249, "with\nline")
_EVERY_RULE: Final = AclBindingFilter()
_OPERATIONS: Final = tuple(one for one in AclOperation if one > AclOperation.ALL)
# Other operations imply these two, but as in Kafka only for a named resource.
_NOT_IMPLIED: Final = tuple(
    one for one in _OPERATIONS if one not in (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
)
_RESOURCES: Final = tuple(one for one in ResourceType if one > ResourceType.ANY)


class Decision(NamedTuple):
    """The expected decision of an authorizer about a principal, e.g. `User:alice`."""

    principal: str
    operation: AclOperation
    resource_type: ResourceType
    resource_name: str
    allowed: bool


class _Case(PartCase):
    contract = Authorizer
    decisions: Sequence[Decision] = ()
    authorizer: Authorizer

    @contextmanager
    def opened(self) -> Iterator[Authorizer]:
        with super().opened() as self.authorizer:
            yield self.authorizer

    def request(self, principal: KafkaPrincipal = ANONYMOUS) -> RequestContext:
        """Return a request of the principal, for which `prepare` has run and any wait has ended, as in a server."""
        context = self.listener.request(MetadataRequest(), 9, self.listener.connection(principal))
        asked = [(resource_type, name) for resource_type in _RESOURCES for name in _NAMES]
        asked += [(one.resource_type, one.resource_name) for one in self.decisions]
        release = within_patience("prepare", self.authorizer.prepare, context, asked)
        if release is not None:
            ensure(isinstance(release, Release), f"prepare returned {release!r}")
            released = threading.Event()
            release.when_released(released.set)
            ensure(released.wait(rules.PATIENCE_S), "the release that prepare returned never comes")
        return context

    def request_of(self, name: str) -> RequestContext:
        kind, _, user = name.partition(":")
        return self.request(KafkaPrincipal(user, kind))


def check_authorizer(
    factory: Callable[[Any], Authorizer],
    settings: Any = None,
    *,
    decisions: Sequence[Decision] = (),
    other_settings: Any = None,
) -> None:
    """Check that an authorizer keeps its contract, and decides as `decisions` expect; see `check_gate`.

    Raises AssertionError. If the authorizer stores ACLs, the suite creates, lists and deletes some.
    """
    case = _Case(factory, settings, other_settings)
    case.decisions = decisions
    run_rules(AUTHORIZER_RULES, case)


def _questions() -> Iterator[tuple[AclOperation, ResourceType, str]]:
    for operation in _OPERATIONS:
        for resource_type in _RESOURCES:
            for name in _NAMES:
                yield operation, resource_type, name


def decides_true_or_false(case: _Case) -> None:
    """`authorize` returns True or False for every operation, resource and name; it raises nothing, and never blocks."""
    with case.opened() as authorizer:
        for principal in (ANONYMOUS, KafkaPrincipal("alice"), KafkaPrincipal("ümläut,CN=x")):
            context = case.request(principal)

            def ask(context: RequestContext = context) -> None:
                for question in _questions():
                    granted = authorizer.authorize(context, *question)
                    ensure(granted is True or granted is False, f"authorize{question} returned {granted!r}")

            within_patience("authorize", ask)


def decides_alike_unlogged(case: _Case) -> None:
    """`log_if_denied` changes only what is logged, and no decision."""
    with case.opened() as authorizer:
        context = case.request(KafkaPrincipal("alice"))
        for question in _questions():
            first = authorizer.authorize(context, *question)
            second = authorizer.authorize(context, *question, log_if_denied=False)
            ensure(first is second, f"authorize{question} returned {first}, and {second} without a log line")


def says_what_decided(case: _Case) -> None:
    """`decide` grants what `authorize` grants, logged or not; its verdict has a word and a rule, or neither."""
    with case.opened() as authorizer:
        context = case.request(KafkaPrincipal("alice"))
        for question in _questions():
            granted = authorizer.authorize(context, *question)
            for log_if_denied in (True, False):
                verdict = authorizer.decide(context, *question, log_if_denied=log_if_denied)
                ensure(isinstance(verdict, Verdict), f"decide{question} returned {verdict!r}")
                ensure(verdict.granted is granted, f"decide{question} returned {verdict}, and authorize {granted}")
                ensure(bool(verdict.decided_by) or verdict.acl is None, f"{verdict} has a rule but no word for it")


def agrees_with_itself_about_types(case: _Case) -> None:
    """`authorize_by_resource_type` returns True or False; True if `authorize` allows a resource of the type."""
    with case.opened() as authorizer:
        for principal in {ANONYMOUS.name, *(one.principal.partition(":")[2] for one in case.decisions)}:
            context = case.request(KafkaPrincipal(principal))
            for operation in _NOT_IMPLIED:
                for resource_type in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID):
                    by_type = authorizer.authorize_by_resource_type(context, operation, resource_type)
                    ensure(by_type is True or by_type is False, f"it returned {by_type!r}")
                    if not by_type:
                        allowed = authorizer.authorize(context, operation, resource_type, _NAMES[0])
                        ensure(
                            not allowed,
                            f"{operation.name} of a {resource_type.name} is allowed, but of none by its type",
                        )


def decides_as_expected(case: _Case) -> None:
    """An authorizer decides as the given decisions expect, and decides the same a second time."""
    with case.opened() as authorizer:
        for _ in range(2):
            for one in case.decisions:
                context = case.request_of(one.principal)
                granted = authorizer.authorize(context, one.operation, one.resource_type, one.resource_name)
                ensure(granted is one.allowed, f"{one} was decided {granted!r}")


def leaves_the_request_alone(case: _Case) -> None:
    """An authorizer changes neither the request nor its connection."""
    with case.opened() as authorizer:
        context = case.request(KafkaPrincipal("alice"))
        before = (context.principal, context.client_id, context.decisions, dict(context.connection.state))
        for question in _questions():
            authorizer.authorize(context, *question)
        after = (context.principal, context.client_id, context.decisions, dict(context.connection.state))
        ensure(before == after, f"{before} became {after}")


def decides_from_several_threads(case: _Case) -> None:
    """`authorize` is called from several threads concurrently."""
    with case.opened() as authorizer:
        context, questions = case.request(), list(_questions())
        from_threads("authorize", lambda number: authorizer.authorize(context, *questions[number % len(questions)]))


def keeps_acls_or_says_that_it_does_not(case: _Case) -> None:
    """Created ACLs are listed and take effect; deleted ACLs are gone. An authorizer without ACLs raises KafkaError."""
    alice = KafkaPrincipal("alice")
    wanted = (AclOperation.WRITE, ResourceType.TOPIC, "conformance")
    operation, resource_type, name = wanted
    fields = (resource_type, name, PatternType.LITERAL, "User:alice", "*", operation)
    with case.opened() as authorizer:
        try:
            existing = set(authorizer.acls(_EVERY_RULE))
        except KafkaError:
            return
        for permission, granted in ((AclPermission.ALLOW, True), (AclPermission.DENY, False)):
            binding = AclBinding(*fields, permission)
            errors = authorizer.create_acls([binding])
            ensure(errors == [None], f"create_acls returned {errors!r}")
            ensure(binding in authorizer.acls(_EVERY_RULE), "what was created is not listed")
            decided = authorizer.authorize(case.request(alice), *wanted)
            ensure(decided is granted, f"a rule that says {permission.name} was decided {decided!r}")
        mine = AclBindingFilter(resource_type, name, PatternType.LITERAL)
        deleted = authorizer.delete_acls([mine])
        ensure(len(deleted) == 1 and not isinstance(deleted[0], KafkaError), f"delete_acls returned {deleted!r}")
        ensure(set(authorizer.acls(_EVERY_RULE)) == existing, "what was deleted is still listed")


AUTHORIZER_RULES: Final = rules_of(_Case)
