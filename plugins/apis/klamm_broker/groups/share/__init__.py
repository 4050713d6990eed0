"""Share groups (KIP-932): members, epochs and assignments. `klamm_broker.share` delivers the records.

group        members, epochs, state
coordinator  heartbeats, departures, description
persistence  to and from the store
"""
