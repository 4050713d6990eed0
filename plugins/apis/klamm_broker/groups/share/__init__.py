"""Share groups (KIP-932): members, epochs and assignments. What is delivered to them: `klamm_broker.share`.

group        members, epochs, state
coordinator  heartbeats, departures, description
persistence  to and from the store
"""
