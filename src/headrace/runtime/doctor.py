"""Checks the requirements of a connector: what is missing, and how to fix it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from headrace.control import check_definition
from headrace.control.validation import resolvable
from headrace.evolution import plugin_keys
from headrace.plugins import PluginTimeoutError, within
from headrace.sdk import ConfigErrors, HeadraceError
from headrace.sdk.connector import Finding, Verdict
from headrace.spark.jars import JarCache, locked_jars
from headrace.spark.jvm import find_java

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.model import Definition, PluginSpec
    from headrace.plugins import Registry
    from headrace.sdk import Connector
    from headrace.sdk.config import Config
    from headrace.settings import Settings


@dataclass(frozen=True, slots=True)
class Examined:
    """A checked requirement.

    Args:
        part: What requires it: ``machine``, ``definition``, or the plugin's path in the file.
    """

    part: str
    finding: Finding


def examine_machine(settings: Settings) -> Iterator[Examined]:
    """Yield Spark's requirements of this machine. Spark is not started."""
    try:
        java = find_java(settings.java_home)
    except HeadraceError as error:
        yield Examined("machine", _failed("Java", error))
        return
    yield Examined("machine", Finding("Java", Verdict.OK, f"{java.version} in {java.home}"))
    cache = JarCache(folder=settings.cache / "jars", java=java, spark_conf=settings.spark_conf)
    missing = cache.missing(locked_jars())
    if missing:
        found = f"{len(missing)} are missing, such as {missing[0].coordinates}"
        finding = Finding("Spark's jars", Verdict.WARNING, found, "Run `headrace setup`.")
    else:
        finding = Finding("Spark's jars", Verdict.OK, f"in {cache.folder}")
    yield Examined("machine", finding)


def examine_definition(definition: Definition, registry: Registry) -> list[Examined]:
    """Return the requirements of a definition and its plugins, with secrets redacted.

    A plugin whose configuration is invalid is not asked. A plugin that times out or fails is a
    finding too.
    """
    checked = check_definition(definition, registry)
    known, _ = resolvable(definition, registry.references)
    examined: list[Examined] = []
    for place, spec, find in _plugins(known, registry):
        found = _examined(spec, known.name, find, registry)
        examined += (Examined(place, each) for each in found)
    reported = {each.finding.found for each in examined}
    general = [_of_check(error, Verdict.FAILED) for error in _each(checked.errors)]
    general += [_of_check(error, Verdict.WARNING) for error in _each(checked.warnings)]
    # The plugin's examination usually includes the findings of the check.
    examined = [
        Examined("definition", f) for f in general if f.found not in reported
    ] + examined
    if not general:
        examined.insert(0, Examined("definition", Finding("configuration", Verdict.OK)))
    redacted = registry.references.secrets.redacted
    return [
        replace(
            each,
            finding=replace(
                each.finding,
                requirement=redacted(each.finding.requirement),
                found=redacted(each.finding.found),
                fix=redacted(each.finding.fix),
            ),
        )
        for each in examined
    ]


def _plugins(
    definition: Definition, registry: Registry
) -> Iterator[tuple[str, PluginSpec, Callable[[str], type[Connector]]]]:
    if definition.source is not None:
        yield definition.source.place or "source", definition.source, registry.source
    for each in definition.sinks:
        yield each.place or "sink", each, registry.sink


def _examined(
    spec: PluginSpec, name: str, find: Callable[[str], type[Connector]], registry: Registry
) -> list[Finding]:
    try:
        plugin = find(spec.plugin)
        props = {"name": name, **plugin_keys(spec.config)}
        config = plugin.config_def().parse(props)
    except (ConfigErrors, HeadraceError):
        return []  # reported by the check of the definition
    limit = registry.check_timeout
    try:
        return within(limit, "headrace-doctor", partial(_asked, plugin, config))
    except PluginTimeoutError as error:
        return [_failed("answer in time", error)]


def _asked(plugin: type[Connector], config: Config) -> list[Finding]:
    found: list[Finding] = []
    try:
        found += plugin.examine(config)
    except HeadraceError as error:
        found.append(_failed(error.field or "examination", error))
    except Exception as error:  # noqa: BLE001 - plugins may raise anything
        problem = f"{type(error).__name__}: {error}"
        found.append(Finding("examination", Verdict.FAILED, problem))
    return found


def _each(errors: tuple[HeadraceError, ...]) -> Iterator[HeadraceError]:
    for error in errors:
        yield from error.errors if isinstance(error, ConfigErrors) else (error,)


def _of_check(error: HeadraceError, verdict: Verdict) -> Finding:
    return Finding(error.field or "configuration", verdict, error.problem, error.fix or "")


def _failed(requirement: str, error: HeadraceError) -> Finding:
    return Finding(requirement, Verdict.FAILED, error.problem, error.fix or "")
