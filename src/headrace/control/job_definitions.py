"""Parses the document of a job: a copy in sections, its schedule and its alerts."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.control.connector_settings import CommonSettings, ErrorSettings
from headrace.control.definition_forms import check_addressable, flat, from_sections
from headrace.control.job_windows import require_plain
from headrace.control.validation import check_definition, errors_at, key_values, unknown_keys
from headrace.model import (
    AlertPolicy,
    CatchUp,
    Cron,
    Definition,
    Interval,
    JobSpec,
    Mode,
    Once,
    Overlap,
    PluginSpec,
    Rhythm,
    RunPolicy,
    Schedule,
    Unit,
)
from headrace.sdk import Boundaries, BoundaryKind, ConfigError, ConfigErrors, HeadraceError
from headrace.sdk.config import (
    ConfigType,
    Lambda,
    NonEmptyString,
    NullOr,
    Range,
    Settings,
    invalid,
    setting,
)
from headrace.sdk.sensitive import secrets_in

if TYPE_CHECKING:
    from headrace.plugins import Registry
    from headrace.sdk import Connector
    from headrace.sdk.config import Config

_Read = TypeVar("_Read")
_Section = TypeVar("_Section", bound=Settings)
_INTERVAL = re.compile(r"(\d{1,8})\s*([a-z]+?)s?")
_SHORT = {"s": "second", "m": "minute", "min": "minute", "h": "hour", "d": "day", "w": "week"}
_LENGTHS = {
    Unit.SECOND: timedelta(seconds=1),
    Unit.MINUTE: timedelta(minutes=1),
    Unit.HOUR: timedelta(hours=1),
    Unit.DAY: timedelta(days=1),
    Unit.WEEK: timedelta(weeks=1),
}
_TURNING = re.compile("[\u202a-\u202e\u2066-\u2069]")
"""Bidirectional control characters, which make a name look like another one."""
_ANY_START = "1970-01-01T00:00:00"
"""The start for a document that is only checked; a stored document always has a start."""
_YEARS = range(1900, 3000)
_MOST = 366 * 24 * 3600  # seconds; a longer delay or retry is a mistake


def _interval(name: str, value: object) -> Interval:
    found = _INTERVAL.fullmatch(str(value).strip().lower())
    unit = found and _SHORT.get(found[2], found[2])
    if found is None or unit not in {each.value for each in Unit}:
        fix = f"Write a number and one of: {', '.join(each.value for each in Unit)}."
        raise invalid(name, value, "Must be an interval, such as 15 minutes", fix=fix)
    return Interval(int(found[1]), Unit(unit))


def _duration(name: str, value: object) -> timedelta:
    if str(value).strip() == "0":
        return timedelta()
    interval = _interval(name, value)
    if interval.unit not in _LENGTHS:
        raise invalid(name, value, "Must be a duration of weeks or less", fix="Use days.")
    if interval.amount > _MOST:
        raise invalid(name, value, "Must be a year or less")
    length: timedelta = interval.amount * _LENGTHS[interval.unit]
    return length


def _time(name: str, value: object) -> datetime:
    try:
        time = datetime.fromisoformat(str(value))
    except ValueError as error:
        fix = "Write a local time in the schedule's zone, such as 2026-01-31T00:00:00."
        raise invalid(name, value, "Must be a time", fix=fix) from error
    if time.microsecond:
        raise invalid(name, value, "Must be a whole second")
    if time.year not in _YEARS:  # windows and zones overflow near datetime's limits
        raise invalid(name, value, f"Must be in the years {_YEARS[0]} to {_YEARS[-1]}")
    return time


def _if_set(check: Callable[[str, object], object], text: str) -> NullOr:
    def valid(name: str, value: object) -> None:
        check(name, value)

    return NullOr(Lambda(valid, text))


_DURATION = _if_set(_duration, "A duration, such as 10 minutes")
_TIME = _if_set(_time, "A time, such as 2026-01-31T00:00:00")


class ScheduleSettings(Settings, group="Schedule"):
    """When a job runs. Each window runs once, whatever wakes the job."""

    every: str | None = setting(
        "The length of a window, such as 1 hour, 15 minutes or 1 month: a number of seconds, "
        "minutes, hours, days, weeks, months or years. Days and longer units follow the "
        "calendar in the zone.",
        default=None,
        validator=_if_set(_interval, "An interval, such as 1 hour"),
    )
    cron: str | None = setting(
        "A cron expression with five fields, or six with seconds first. Each window lasts from "
        "one of its times to the next.",
        default=None,
    )
    once: bool = setting("Whether there is only one window, from start to end.", default=False)
    after: str | None = setting(
        "The name of another job. After each of its windows succeeds, this job runs for the "
        "same window.",
        default=None,
        validator=NullOr(NonEmptyString()),
    )
    start: str | None = setting(
        "The start of the first window, as a local time in the zone. The default is midnight "
        "of the day on which the job is created.",
        default=None,
        validator=_TIME,
    )
    end: str | None = setting(
        "The end of the last window. Null for no end.", default=None, validator=_TIME
    )
    zone: str = setting("The time zone, such as Europe/Zurich.", default="UTC")
    delay: str = setting(
        "How long to wait for late data after the end of a window.",
        default="0",
        validator=_DURATION,
    )
    catchup: CatchUp = setting(
        "Which windows to run that became due while no server was running, or before the job "
        "was started: all of them, the latest, or none.",
        default=CatchUp.ALL,
    )
    overlap: Overlap = setting(
        "What to do with a window that becomes due while an earlier one runs: wait (queue), "
        "skip it (skip), or run it at the same time (parallel).",
        default=Overlap.QUEUE,
    )
    parallel: int = setting(
        "The maximum number of windows that run at the same time if overlap is parallel.",
        default=2,
        validator=Range(1, 100),
    )
    depends_on_past: bool = setting(
        "Whether a window waits until all earlier windows have succeeded.", default=False
    )
    engine: str | None = setting(
        "The external scheduler that wakes the job when windows are due, by its name in the "
        "setting `schedule_engines`. Null for Headrace's own scheduler.",
        default=None,
        validator=NullOr(NonEmptyString()),
    )


class RunSettings(Settings, group="Runs"):
    """Retries and timeout of runs."""

    retries: int = setting(
        "How often a failed run is retried.", default=2, validator=Range(0, 100)
    )
    retry_delay: str = setting(
        "The wait before the first retry; it doubles with each further retry.",
        default="1 minute",
        validator=_DURATION,
    )
    timeout: str | None = setting(
        "How long an attempt may take. Null for no limit.",
        default=None,
        validator=_DURATION,
    )


def _factor(name: str, value: object) -> None:
    if value is not None and not 1 < float(str(value)) < math.inf:
        raise invalid(name, value, "Must be more than 1")


_FACTOR = Lambda(_factor, "more than 1")


class AlertSettings(Settings, group="Alerts"):
    """Which alerts a job sends, and by which channels."""

    channels: tuple[str, ...] | None = setting(
        "The names of channels from the server's setting `alerts`. Null for all of them, empty "
        "for none.",
        default=None,
        type=ConfigType.LIST,
    )
    failed: bool = setting(
        "Whether a failed run alerts after its last retry. A run that is retried without a "
        "limit, as in real time, or that has made no progress for five minutes, alerts once an "
        "hour.",
        default=True,
    )
    late: str | None = setting(
        "How long after its window was due a run of the schedule must have succeeded; if not, "
        "it alerts once. Null for no limit.",
        default=None,
        validator=_DURATION,
    )
    empty: bool = setting("Whether a run that finds no records alerts.", default=False)
    balance: bool = setting(
        "Whether a run alerts if records are unaccounted for: the number of records read is "
        "not the sum of those written, filtered and rejected.",
        default=True,
    )
    duration_factor: float | None = setting(
        "A run alerts if it takes more than this factor times the usual duration, or less than "
        "the usual duration divided by it. Usual is the median of the last 20 successful runs "
        "over windows of about the same length, if there are at least 5. Null for no limit.",
        default=None,
        validator=_FACTOR,
    )
    rows_factor: float | None = setting(
        "The same for the number of records that a run reads. If the usual number is 0, no "
        "number is unusual. Null for no limit.",
        default=None,
        validator=_FACTOR,
    )


class JobSettings(RunSettings, group="Job"):
    """The keys of a job besides its copy, schedule and alerts."""

    mode: Mode = setting(
        "offline reads each window once, by a schedule or on request. realtime follows the "
        "source until the job is suspended, without a schedule; a job that was offline before "
        "continues after the last window of its schedule.",
        default=Mode.OFFLINE,
    )
    boundaries: BoundaryKind = setting(
        "The kind of the window bounds: time, offset (positions of the source), value (of a "
        "column) or snapshot (versions). Windows of a schedule have bounds of kind time.",
        default=BoundaryKind.TIME,
    )
    approvers: tuple[str, ...] = setting(
        "The users who may approve the job, which does not run before. Empty if no approval is "
        "needed.",
        default=(),
        type=ConfigType.LIST,
    )


_KEYS = {*JobSettings.config_def().keys}
_COPY = ("name", "source", "sinks", "transforms", "predicates")
_ALIKE = 0.75
_SECTIONS = ("schedule", "alerts")
"""The keys that contain sections."""


def read_job(document: Mapping[str, Any]) -> JobSpec:
    """Parse a job's document. Raises ConfigErrors with all errors."""
    errors: list[ConfigError] = []
    copy = {k: v for k, v in document.items() if k not in {*_KEYS, *_SECTIONS}}
    own = flat({k: v for k, v in document.items() if k in _KEYS})
    errors += _misspelt(copy)
    definition = _gathered(errors, lambda: _copy(copy))
    settings = _gathered(errors, lambda: JobSettings.parsed(own))
    section = document.get("schedule")
    timing = None
    if section is not None:
        timing = _gathered(errors, lambda: _section(ScheduleSettings, "schedule", section))
    about = document.get("alerts")
    alerts = _gathered(
        errors, lambda: _section(AlertSettings, "alerts", {} if about is None else about)
    )
    schedule = None
    if timing is not None and timing.after is None:
        schedule = _gathered(errors, lambda: _schedule(timing))
    if settings is not None and settings.mode is Mode.REALTIME:
        errors += _unfit_for_realtime(settings, section)
    elif timing is not None and settings is not None:
        errors += _unfit(timing, settings.boundaries)
    if errors:
        raise ConfigErrors(errors)
    assert definition is not None
    assert settings is not None
    assert alerts is not None
    return JobSpec(
        definition=definition,
        kind=settings.boundaries,
        mode=settings.mode,
        schedule=schedule,
        after=None if timing is None else timing.after,
        engine=None if timing is None else timing.engine,
        policy=_policy(settings, timing or ScheduleSettings.parsed({})),
        approvers=settings.approvers,
        alerts=_alert_policy(alerts),
    )


def _misspelt(copy: dict[str, Any]) -> Iterator[ConfigError]:
    """Remove keys from a copy that look like misspelt job keys, and yield an error for each."""
    known = [*_KEYS, *_SECTIONS]
    others = {*CommonSettings.config_def().keys, *ErrorSettings.config_def().keys, *_COPY}
    for name in [each for each in copy if each not in others]:
        text = str(name).replace("_", ".").lower()
        near = next(iter(get_close_matches(text, [*known, *others], 1, _ALIKE)), None)
        if near in known:
            del copy[name]
            yield ConfigError("Unknown key.", field=name, fix=f"Did you mean {near}?")


def _gathered(errors: list[ConfigError], read: Callable[[], _Read]) -> _Read | None:
    try:
        return read()
    except ConfigErrors as several:
        errors += several.errors
    except ConfigError as error:
        errors.append(error)
    return None


def _copy(document: Mapping[str, Any]) -> Definition:
    definitions = from_sections(document)
    first = definitions[0]
    if len(definitions) > 1 or first.source is None or not first.sinks:
        raise ConfigError(
            problem="A job must copy from one source directly to its sinks.",
            fix="Set source: and sinks:, and remove topic:.",
            field="topic" if first.topics else "source",
        )
    if _TURNING.search(first.name):  # allowed for connectors, as in Kafka Connect
        raise ConfigError(
            problem="The name contains bidirectional control characters.",
            fix="Remove U+202A to U+202E and U+2066 to U+2069.",
            field="name",
        )
    check_addressable(first.name)
    return first


def _section(kind: type[_Section], name: str, section: object) -> _Section:
    """Parse the settings of a section. Raises ConfigErrors with the full names of its keys."""
    keys = kind.config_def()
    if not isinstance(section, dict):
        fix = f"Use some of these keys below it: {', '.join(keys.keys)}."
        raise ConfigError(problem="Expected a mapping.", fix=fix, field=name)
    props = flat(section)
    if unknown := list(unknown_keys(keys, props, name)):
        raise ConfigErrors(unknown)
    try:
        return kind.parsed(props)
    except ConfigErrors as several:
        raise errors_at(several.errors, name) from several


def _schedule(timing: ScheduleSettings) -> Schedule:
    return Schedule(
        rhythm=_rhythm(timing),
        start=_time("start", timing.start or _ANY_START),
        end=_time("end", timing.end) if timing.end else None,
        zone=timing.zone,
        delay=_duration("delay", timing.delay),
    )


def _rhythm(timing: ScheduleSettings) -> Rhythm:
    given = [timing.every, timing.cron, timing.once or None]
    if sum(each is not None for each in given) != 1:
        raise ConfigError(
            problem="A schedule must have exactly one of every, cron, once and after.",
            fix="Set one of them, such as every: 1 hour.",
            field="schedule",
        )
    if timing.every is not None:
        return _interval("every", timing.every)
    return Once() if timing.cron is None else Cron(timing.cron)


def _unfit(timing: ScheduleSettings, kind: BoundaryKind) -> Iterator[ConfigError]:
    if timing.after is not None and (timing.every or timing.cron or timing.once):
        fix = "Remove every, cron and once."
        yield ConfigError("It uses another job's windows.", fix=fix, field="schedule.after")
    if timing.after is not None and timing.engine is not None:
        problem = "Runs of another job trigger this job, so it needs no external scheduler."
        yield ConfigError(problem, fix="Remove engine.", field="schedule.engine")
    if timing.after is None and kind is not BoundaryKind.TIME:
        yield ConfigError(
            problem=f"Windows of a schedule have bounds of kind time, not {kind}.",
            fix="Set boundaries to time, or remove the schedule and trigger runs with bounds.",
            field="boundaries",
        )
    if timing.once and not timing.start:
        fix = "Set the start of the window."
        problem = "The window of schedule.once has no start."
        yield ConfigError(problem, fix=fix, field="schedule.start")


def _unfit_for_realtime(settings: JobSettings, schedule: object) -> Iterator[ConfigError]:
    if schedule is not None:
        problem = "A job in real time has no windows, so it cannot have a schedule."
        yield ConfigError(problem, fix="Remove it, or set mode to offline.", field="schedule")
    if settings.timeout is not None:
        problem = "A job in real time has no end, so it cannot have a timeout."
        yield ConfigError(problem, fix="Remove it, or set mode to offline.", field="timeout")


def _policy(settings: JobSettings, timing: ScheduleSettings) -> RunPolicy:
    return RunPolicy(
        catch_up=timing.catchup,
        overlap=timing.overlap,
        parallel=timing.parallel,
        depends_on_past=timing.depends_on_past,
        retries=settings.retries,
        retry_delay=_duration("retry.delay", settings.retry_delay),
        timeout=None if settings.timeout is None else _timeout(settings.timeout),
    )


def _timeout(text: str) -> timedelta:
    key = "timeout"
    if not (found := _duration(key, text)):
        fix = "Set how long an attempt may take, or remove it."
        raise invalid(key, text, "Must be more than 0", fix=fix)
    return found


def _alert_policy(settings: AlertSettings) -> AlertPolicy:
    return AlertPolicy(
        channels=settings.channels,
        failed=settings.failed,
        late=None if settings.late is None else _duration("alerts.late", settings.late),
        empty=settings.empty,
        balance=settings.balance,
        duration_factor=settings.duration_factor,
        rows_factor=settings.rows_factor,
    )


def with_start(document: Mapping[str, Any], now: datetime) -> Mapping[str, Any]:
    """Return a document in JSON types, with the start of its schedule set.

    Types that JSON does not have, such as YAML's dates, become strings.
    """
    document = json.loads(json.dumps(dict(document), default=str))
    section = document.get("schedule")
    if not isinstance(section, dict) or section.get("start") or section.get("after"):
        return document
    spec = read_job(document)
    assert spec.schedule is not None
    today = spec.schedule.local(now).replace(hour=0, minute=0, second=0, microsecond=0)
    start = today.replace(tzinfo=None).isoformat()
    return {**document, "schedule": {**section, "start": start}}


def check_job(
    document: Mapping[str, Any], registry: Registry, since: datetime | None = None
) -> JobSpec:
    """Parse and check a document completely.

    ``since`` is the time from which a job in real time reads. Raises ConfigErrors with all
    errors.
    """
    spec, found = check_copy(document, registry)
    if spec.mode is Mode.OFFLINE:
        found = found or [*_unbounded(spec, registry)]
    elif not found:
        followed(spec.definition, Boundaries.between(since, None), registry)
    if found:
        raise errors_at(found)
    return spec


def check_copy(
    document: Mapping[str, Any], registry: Registry
) -> tuple[JobSpec, list[HeadraceError]]:
    """Parse a document; return the spec and the errors of its copy, without its bounds."""
    spec = read_job(document)
    found = check_definition(spec.definition, registry).errors
    return spec, [*found, *plain_secrets(spec.definition, registry)]


def plain_secrets(definition: Definition, registry: Registry) -> Iterator[ConfigError]:
    """Yield an error for each secret in plain text.

    Guarantee 6: approvers see a job's document unmasked.
    """
    for key, text, field in key_values(definition, registry):
        if registry.references.is_only(text):
            continue
        if key.type is ConfigType.PASSWORD or secrets_in(text):
            yield ConfigError(
                problem="A job must not contain secrets, because its approvers can read them.",
                fix="Use a reference, such as ${env:SHOP_PASSWORD}.",
                field=field,
            )


def _unbounded(spec: JobSpec, registry: Registry) -> Iterable[HeadraceError]:
    source = spec.definition.source
    assert source is not None
    plugin = registry.source(source.plugin)
    if spec.kind not in plugin.boundary_kinds:
        kinds = ", ".join(sorted(plugin.boundary_kinds)) or "none"
        yield ConfigError(
            problem=f"{source.plugin} cannot be read between bounds of kind {spec.kind}.",
            fix=f"Use one of: {kinds}.",
            field="boundaries",
        )
        return
    try:
        bounded(spec.definition, Boundaries(spec.kind, *_SAMPLES[spec.kind]), registry)
    except ConfigErrors as several:
        yield from several.errors


_SAMPLES: Mapping[BoundaryKind, tuple[str | None, str]] = {
    BoundaryKind.TIME: ("2000-01-01T00:00:00Z", "2000-01-02T00:00:00Z"),
    BoundaryKind.OFFSET: (None, "[]"),
    BoundaryKind.VALUE: ("1", "2"),
    BoundaryKind.SNAPSHOT: ("1", "2"),
}
"""Sample bounds of each kind, to check whether a copy can be read between such bounds."""


def bounded(definition: Definition, boundaries: Boundaries, registry: Registry) -> Definition:
    """Return a definition that copies only the rows within the bounds. Raises ConfigErrors."""
    source = definition.source
    assert source is not None
    require_plain(boundaries, registry)
    plugin = registry.source(source.plugin)
    bound = _filled(source, plugin, plugin.fill_in_boundaries, boundaries, registry)
    return replace(
        definition, source=bound, sinks=_filled_sinks(definition, boundaries, registry)
    )


def followed(definition: Definition, boundaries: Boundaries, registry: Registry) -> Definition:
    """Return a definition that reads rows after the lower bound, and then new rows.

    Without a lower bound the source is unchanged. Raises ConfigErrors.
    """
    source, sinks = definition.source, _filled_sinks(definition, boundaries, registry)
    assert source is not None
    if boundaries.lower is not None:
        plugin = registry.source(source.plugin)
        source = _filled(source, plugin, plugin.follow_from, boundaries, registry)
    return replace(definition, source=source, sinks=sinks)


def _filled_sinks(
    definition: Definition, boundaries: Boundaries, registry: Registry
) -> tuple[PluginSpec, ...]:
    found = []
    for spec in definition.sinks:
        plugin = registry.sink(spec.plugin)
        found.append(_filled(spec, plugin, plugin.fill_in_boundaries, boundaries, registry))
    return tuple(found)


def _filled(
    spec: PluginSpec,
    plugin: type[Connector],
    fill: Callable[[Config, Boundaries], Mapping[str, str]],
    boundaries: Boundaries,
    registry: Registry,
) -> PluginSpec:
    """Return a plugin with the bounds in its configuration. Raises ConfigErrors."""
    values, _ = registry.references.values(spec.config)
    try:
        filled = fill(plugin.config_def().parse(values), boundaries)
    except ConfigErrors as several:
        raise errors_at(several.errors, spec.place) from several
    except ConfigError as error:
        raise errors_at([error], spec.place) from error
    # References stay unresolved: only the values that the bounds have changed are replaced.
    changed = {key: value for key, value in filled.items() if values.get(key) != value}
    kept = {key: text for key, text in spec.config.items() if key in filled}
    return replace(spec, config={**kept, **changed})
