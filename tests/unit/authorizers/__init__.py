"""Authorizers."""
