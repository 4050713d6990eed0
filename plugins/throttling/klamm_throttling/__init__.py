"""The throttle `client_quota`."""
