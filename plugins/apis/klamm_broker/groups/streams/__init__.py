"""Streams groups (KIP-1071): the server assigns the tasks of a Kafka Streams application to its members.

coordinator     heartbeats, departures, description
membership      the member that sends a heartbeat: new, known, or in the place of a static one
assignment      group epoch, topology, target assignment
reconciliation  one step of a member towards its target
fencing         timers of members, their removal, and writes
group, member   state
tasks           tasks by role
topology        what an application reads and writes
configuration   how many tasks an application has, and which topics it lacks
state           states and their transitions
persistence     to and from the store
requests        requests and results, independent of wire versions
"""
