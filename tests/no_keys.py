"""The configuration of plugins that have no keys."""

from headrace.sdk.config import ConfigDef

NO_KEYS = ConfigDef().parse({})
