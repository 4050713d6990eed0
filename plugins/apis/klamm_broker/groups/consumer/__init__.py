"""Consumer groups of KIP-848: the server assigns partitions, and each member reconciles on its own.

coordinator     heartbeats and departures of members that speak the consumer protocol
classic_members joins, syncs, heartbeats and departures of members that still speak the classic protocol
migration       from a classic group to a consumer group, and back, with live members
fencing         timers of members, and the removal of members
assignment      group epoch, metadata, target assignment
subscriptions   the topics that members subscribe to; regular expressions
reconciliation  one step of a member towards its target
group, member   the state of a group and of a member
persistence     to and from the store
"""
