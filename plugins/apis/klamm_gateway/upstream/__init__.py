"""Connections to the nodes of the cluster."""
