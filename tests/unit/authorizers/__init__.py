"""Tests of the authorizers."""
