"""Sources that the doctor examines."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import SourceConnector
from headrace.sdk.config import Config, ConfigDef, ConfigType
from headrace.sdk.connector import Finding, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.sdk.sources import Gear


class Guarded(SourceConnector):
    """Finds one thing, and then tells its password in an error."""

    @override
    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef().define("password", ConfigType.PASSWORD, doc="A secret.")

    @override
    @classmethod
    def examine(cls, config: Config) -> Iterable[Finding]:
        yield Finding("right to read t", Verdict.OK)
        problem = f"login as {config['password'].value} failed"
        raise OSError(problem)

    @override
    @classmethod
    def task_class(cls, config: Config) -> type[Gear]:
        raise NotImplementedError


class Silent(Guarded):
    """Does not answer."""

    @override
    @classmethod
    def examine(cls, config: Config) -> Iterable[Finding]:
        time.sleep(60)
        return ()
