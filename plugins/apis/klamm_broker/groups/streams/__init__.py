"""Streams groups (KIP-1071): the server assigns the tasks of a Kafka Streams application to its members.

coordinator     heartbeats, departures, description
membership      the member that sends a heartbeat: new, known, or in the place of a static one
assignment      group epoch, topology, target assignment
reconciliation  one step of a member towards its target
fencing         timers of members, their removal, and writes
group, member   the state of a group and of a member
tasks           tasks by role
topology        the topics that an application reads and writes
configuration   the number of an application's tasks, and the topics that it lacks
persistence     to and from the store
requests        requests and results, independent of wire versions
"""
