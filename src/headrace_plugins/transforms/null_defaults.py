"""The setting by which transforms of fields replace nulls with the defaults of schemas."""

from headrace.sdk.config import Settings, setting


class NullDefaults(Settings):
    """For transforms of fields that may be null and have a default."""

    replace_null_with_default: bool = setting(
        "Whether a field that is null gets the default of its schema, if it has one.",
        default=True,
    )
