"""Conformance suites, which check that a part keeps the rules of its contract. klamm's own parts pass them.

The arguments of a suite are the factory of a part and its settings. For the first rule that the part breaks, it raises
AssertionError with the part, the rule, the expected and the actual behaviour.
"""

from klamm.testing.conformance.authentication import check_authenticator
from klamm.testing.conformance.authorizers import Decision, check_authorizer
from klamm.testing.conformance.connections import check_gate, check_throttle
from klamm.testing.conformance.dispatch import check_assigner, check_scheduler
from klamm.testing.conformance.playbooks import Playbook
from klamm.testing.conformance.requests import check_filter, check_observer
from klamm.testing.conformance.sasl import check_credential_store, check_sasl_mechanism
from klamm.testing.conformance.servers import check_api_set, check_extension
from klamm.testing.conformance.transports import check_transport

__all__ = [
    "Decision",
    "Playbook",
    "check_api_set",
    "check_assigner",
    "check_authenticator",
    "check_authorizer",
    "check_credential_store",
    "check_extension",
    "check_filter",
    "check_gate",
    "check_observer",
    "check_sasl_mechanism",
    "check_scheduler",
    "check_throttle",
    "check_transport",
]
