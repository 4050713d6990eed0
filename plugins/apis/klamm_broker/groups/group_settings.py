"""Limits of groups that cannot be configured."""

from __future__ import annotations

from typing import Final

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
"""Maximum time for which a new member's join waits. Such a member has no member id yet and cannot send heartbeats. The
time is fixed in Kafka too.
"""
MAX_PENDING_JOINS: Final = 1000
"""Maximum number of a group's issued member ids whose members have not joined. Each id may be as long as a client id;
Kafka has no limit.
"""
