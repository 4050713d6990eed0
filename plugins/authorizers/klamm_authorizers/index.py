"""`AclIndex`: the rules in dictionaries, for the decisions of `acl` and `static` on any thread.

Kafka's `StandardAuthorizerData` walks over sorted rules instead. The results are the same.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias, TypeVar

from klamm.acl import WILDCARD, AclBinding, AclOperation, AclPermission, PatternType, ResourceType, Verdict
from klamm.shared import IpAddress, ip_address_of

ANY_PRINCIPAL: Final = "User:*"

_IMPLIED_BY: Final[dict[AclOperation, frozenset[AclOperation]]] = {
    operation: frozenset({operation, AclOperation.ALL}) for operation in AclOperation
} | {
    AclOperation.DESCRIBE: frozenset(
        {
            AclOperation.DESCRIBE,
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.DELETE,
            AclOperation.ALTER,
            AclOperation.ALL,
        }
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset(
        {AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS, AclOperation.ALL}
    ),
}
"""The operations whose permission implies each operation. The denial of an operation implies no other denial."""


@dataclass(frozen=True, slots=True)
class Host:
    """A client's address in its canonical form; `address` is None for a host that is not an IP address."""

    text: str
    address: IpAddress | None


@lru_cache(maxsize=4096)
def host_of(text: str) -> Host:
    """Return the `Host` of an address, the same for each notation: full, short, with a zone, or IPv4 within IPv6."""
    try:
        address = ip_address_of(text)
    except ValueError:
        return Host(text, None)
    return Host(str(address), address)


@dataclass(frozen=True, slots=True)
class Rule:
    """A binding with its parsed host. `network` is None if the host is a single address or `*`.

    `verdict` is the decision for a request that the rule matches.
    """

    binding: AclBinding
    verdict: Verdict
    denies: bool
    operation: AclOperation
    host: str
    network: ipaddress.IPv4Network | ipaddress.IPv6Network | None

    def is_for_host(self, host: Host) -> bool:
        """Return True if the rule applies to clients from this address."""
        if self.host in (WILDCARD, host.text):
            return True
        return self.network is not None and host.address is not None and host.address in self.network


_Key = TypeVar("_Key")
_ByPrincipal: TypeAlias = dict[str, tuple[Rule, ...]]


_BY_DEFAULT: Final = (Verdict(False, "no_acl_found"), Verdict(True, "no_acl_found"))


class AclIndex:
    """The rules by resource type, name or prefix, and principal. `decided_by` is the kind of rule that verdicts name.

    Any thread may read while one thread changes the rules, because `add` and `remove` replace the tuple of rules of a
    pattern and principal as a whole.
    """

    def __init__(self, bindings: Iterable[AclBinding], decided_by: str = "acl") -> None:
        self._decided_by = decided_by
        literals: dict[tuple[ResourceType, str], dict[str, list[Rule]]] = {}
        prefixed: dict[tuple[ResourceType, str], dict[str, list[Rule]]] = {}
        by_principal: dict[tuple[ResourceType, str], list[Rule]] = {}
        self._rules = {binding: _rule(binding, decided_by) for binding in bindings}
        for binding, rule in self._rules.items():
            patterns = prefixed if binding.pattern_type is PatternType.PREFIXED else literals
            below = patterns.setdefault((binding.resource_type, binding.resource_name), {})
            below.setdefault(binding.principal, []).append(rule)
            by_principal.setdefault((binding.resource_type, binding.principal), []).append(rule)
        self._by_principal = {key: tuple(rules) for key, rules in by_principal.items()}
        self._literals = {key: _frozen(rules) for key, rules in literals.items()}
        self._prefixed = {key: _frozen(rules) for key, rules in prefixed.items()}
        self._prefixes_by_length = Counter((resource_type, len(prefix)) for resource_type, prefix in self._prefixed)
        self._prefix_lengths: dict[ResourceType, tuple[int, ...]] = {}
        for resource_type in {resource_type for resource_type, _ in self._prefixed}:
            self._order_lengths(resource_type)

    def __len__(self) -> int:
        return len(self._rules)

    def bindings(self) -> Collection[AclBinding]:
        """Return all rules at this moment."""
        return tuple(self._rules)

    def add(self, binding: AclBinding) -> None:
        """Add a rule. The cost does not grow with the rules of other patterns and principals."""
        if binding in self._rules:
            return
        rule = self._rules[binding] = _rule(binding, self._decided_by)
        patterns = self._patterns_like(binding)
        key = (binding.resource_type, binding.resource_name)
        if key not in patterns:
            patterns[key] = {}
            self._count_prefix(binding, 1)
        below = patterns[key]
        below[binding.principal] = (*below.get(binding.principal, ()), rule)
        owner = (binding.resource_type, binding.principal)
        self._by_principal[owner] = (*self._by_principal.get(owner, ()), rule)

    def remove(self, binding: AclBinding) -> None:
        """Remove a rule if it exists."""
        rule = self._rules.pop(binding, None)
        if rule is None:
            return
        patterns = self._patterns_like(binding)
        key = (binding.resource_type, binding.resource_name)
        _remove_rule(patterns[key], binding.principal, rule)
        if not patterns[key]:
            del patterns[key]
            self._count_prefix(binding, -1)
        _remove_rule(self._by_principal, (binding.resource_type, binding.principal), rule)

    def _patterns_like(self, binding: AclBinding) -> dict[tuple[ResourceType, str], _ByPrincipal]:
        return self._prefixed if binding.pattern_type is PatternType.PREFIXED else self._literals

    def _count_prefix(self, binding: AclBinding, change: int) -> None:
        if binding.pattern_type is PatternType.PREFIXED:
            self._prefixes_by_length[binding.resource_type, len(binding.resource_name)] += change
            self._order_lengths(binding.resource_type)

    def _order_lengths(self, resource_type: ResourceType) -> None:
        self._prefix_lengths[resource_type] = tuple(
            sorted(
                length for (kind, length), count in self._prefixes_by_length.items() if kind is resource_type and count
            )
        )

    def decide(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        resource_name: str,
        *,
        default: bool,
    ) -> Verdict:
        """Decide by the rules. `default` applies to a resource that no rule of any principal matches."""
        client = host_of(host)
        allowing = _IMPLIED_BY[operation]
        allowed: Verdict | None = None
        has_rules = False
        for by_principal in self._patterns(resource_type, resource_name):
            has_rules = True
            for subject in (principal, ANY_PRINCIPAL):
                for rule in by_principal.get(subject, ()):
                    if not rule.is_for_host(client):
                        continue
                    if rule.denies:
                        if rule.operation is operation or rule.operation is AclOperation.ALL:
                            return rule.verdict
                    elif allowed is None and rule.operation in allowing:
                        allowed = rule.verdict
        if allowed is not None:
            return allowed
        return _BY_DEFAULT[default and not has_rules]

    def _patterns(self, resource_type: ResourceType, name: str) -> Iterator[_ByPrincipal]:
        for literal in (name, WILDCARD) if name != WILDCARD else (WILDCARD,):
            rules = self._literals.get((resource_type, literal))
            if rules is not None:
                yield rules
        for length in self._prefix_lengths.get(resource_type, ()):
            if length > len(name):
                return
            rules = self._prefixed.get((resource_type, name[:length]))
            if rules is not None:
                yield rules

    def decide_for_any(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Return True if the operation is allowed on at least one resource of the type.

        Follows `Authorizer.authorizeByResourceType` (KIP-679).
        """
        client = host_of(host)
        allow_literals, deny_literals = set[str](), set[str]()
        allow_prefixes, deny_prefixes = set[str](), set[str]()
        for subject in (principal, ANY_PRINCIPAL):
            for rule in self._by_principal.get((resource_type, subject), ()):
                if rule.operation not in (operation, AclOperation.ALL) or not rule.is_for_host(client):
                    continue
                if rule.binding.pattern_type is PatternType.PREFIXED:
                    names = deny_prefixes if rule.denies else allow_prefixes
                else:
                    names = deny_literals if rule.denies else allow_literals
                names.add(rule.binding.resource_name)
        if WILDCARD in deny_literals:
            return False
        if WILDCARD in allow_literals:
            return True
        return any(
            name not in deny_literals and not _has_prefix_in(name, deny_prefixes) for name in allow_literals
        ) or any(not _has_prefix_in(prefix, deny_prefixes) for prefix in allow_prefixes)


def _has_prefix_in(name: str, prefixes: Collection[str]) -> bool:
    return any(name[:length] in prefixes for length in range(1, len(name) + 1))


def _rule(binding: AclBinding, decided_by: str) -> Rule:
    network = None
    if "/" in binding.host:
        network = ipaddress.ip_network(binding.host, strict=False)
    denies = binding.permission is AclPermission.DENY
    verdict = Verdict(not denies, decided_by, binding)
    return Rule(binding, verdict, denies, binding.operation, host_of(binding.host).text, network)


def _remove_rule(rules: dict[_Key, tuple[Rule, ...]], key: _Key, rule: Rule) -> None:
    left = tuple(each for each in rules[key] if each is not rule)
    if left:
        rules[key] = left
    else:
        del rules[key]


def _frozen(rules: dict[str, list[Rule]]) -> _ByPrincipal:
    return {principal: tuple(found) for principal, found in rules.items()}
