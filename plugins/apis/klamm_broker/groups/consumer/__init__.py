"""Consumer groups of KIP-848: the server assigns partitions, members reconcile one by one.

coordinator     heartbeats and departures of members that speak the consumer protocol
classic_members joins, syncs, heartbeats and departures of members that still speak the classic protocol
migration       from a classic group to a consumer group, and back, with live members
fencing         the timers of members, and what happens when a member goes
assignment      group epoch, metadata, target assignment
subscriptions   which topics members read; regular expressions
reconciliation  one step of a member towards its target
group, member   state
state           states, and which may follow which
persistence     to and from the store
requests        what comes in and goes out, free of wire versions
"""
