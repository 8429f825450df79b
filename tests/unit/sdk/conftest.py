"""Generated examples are slow to make on a busy machine, which is no failure."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "sdk",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
settings.load_profile("sdk")
