"""Conformance suites: the rules of each contract, checked on a part. klamm's own parts pass them.

Each suite takes the factory of a part and its settings, and raises AssertionError for the first rule that the part
breaks: part, rule, expected and actual behaviour.
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
