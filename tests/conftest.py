"""What all tests share."""

from hypothesis import HealthCheck, settings

# Machines are shared: a slow draw is no fault of the code.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")
