"""Credential stores of the authenticator `sasl`."""
