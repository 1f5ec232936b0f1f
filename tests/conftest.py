"""No test may depend on how fast the machine is, nor CI on luck."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "manymatch",
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("manymatch")
