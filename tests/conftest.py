"""No test may depend on how fast the machine is, nor CI on luck."""

import os
import signal

from hypothesis import HealthCheck, settings

settings.register_profile(
    "manymatch",
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("manymatch")

# Tests that import ONNX Runtime themselves must not report to its makers either.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

# A shell ignores Ctrl-C in what it starts in the background, and so would all that is tested here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
