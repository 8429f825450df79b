"""The document of a job: a copy in sections, with when and over what it runs."""

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
from headrace.control.definition_forms import flat, from_sections
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
"""By these a name is shown as another one."""
_ANY_START = "1970-01-01T00:00:00"
"""Of a document that is only checked: what is stored says where it starts."""
_YEARS = range(1900, 3000)
_MOST = 366 * 24 * 3600  # seconds; a delay or a retry that is longer is a mistake


def _interval(name: str, value: object) -> Interval:
    found = _INTERVAL.fullmatch(str(value).strip().lower())
    unit = found and _SHORT.get(found[2], found[2])
    if found is None or unit not in {each.value for each in Unit}:
        fix = f"Write a number and a unit of {', '.join(each.value for each in Unit)}."
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
        fix = "Write a time of day in the schedule's zone, such as 2026-01-31T00:00:00."
        raise invalid(name, value, "Must be a time", fix=fix) from error
    if time.microsecond:
        raise invalid(name, value, "Must be a whole second")
    if time.year not in _YEARS:  # there are windows and zones around those that are the limits
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
        "minutes, hours, days, weeks, months or years. Days and what is longer are of the "
        "calendar in the zone.",
        default=None,
        validator=_if_set(_interval, "An interval, such as 1 hour"),
    )
    cron: str | None = setting(
        "A cron expression of five fields, or of six with seconds first: a window lies between "
        "two of its times.",
        default=None,
    )
    once: bool = setting("One window, from start to end.", default=False)
    after: str | None = setting(
        "The name of another job: each of its windows that succeeds is run here too.",
        default=None,
        validator=NullOr(NonEmptyString()),
    )
    start: str | None = setting(
        "Where the first window begins, as a time of day in the zone. By default at midnight "
        "of the day on which it is made; its first window is then the one of that moment.",
        default=None,
        validator=_TIME,
    )
    end: str | None = setting(
        "Where the last window ends. Null for no end.", default=None, validator=_TIME
    )
    zone: str = setting("The time zone, such as Europe/Zurich.", default="UTC")
    delay: str = setting(
        "How long a window waits for late data once it is past.",
        default="0",
        validator=_DURATION,
    )
    catchup: CatchUp = setting(
        "Which windows are run that became due while no server was there, or before the job "
        "was started: all of them, the latest, or none.",
        default=CatchUp.ALL,
    )
    overlap: Overlap = setting(
        "What becomes of a window that is due while an earlier one runs: it waits (queue), is "
        "passed over (skip), or runs beside it (parallel).",
        default=Overlap.QUEUE,
    )
    parallel: int = setting(
        "How many windows run side by side at most, with overlap parallel.",
        default=2,
        validator=Range(1, 100),
    )
    depends_on_past: bool = setting(
        "Whether a window waits until all windows before it have succeeded.", default=False
    )
    engine: str | None = setting(
        "The outside scheduler that wakes the job when windows are due, by its name in the "
        "setting `schedule_engines`. Null for Headrace itself.",
        default=None,
        validator=NullOr(NonEmptyString()),
    )


class RunSettings(Settings, group="Runs"):
    """What is done when a run fails."""

    retries: int = setting(
        "How often a run that has failed is tried again.", default=2, validator=Range(0, 100)
    )
    retry_delay: str = setting(
        "The wait before the first retry; it doubles from one to the next.",
        default="1 minute",
        validator=_DURATION,
    )
    timeout: str | None = setting(
        "How long an attempt may take. Null for as long as it likes.",
        default=None,
        validator=_DURATION,
    )


def _factor(name: str, value: object) -> None:
    if value is not None and not 1 < float(str(value)) < math.inf:
        raise invalid(name, value, "Must be more than 1")


_FACTOR = Lambda(_factor, "more than 1")


class AlertSettings(Settings, group="Alerts"):
    """About what a job alerts people, and by which channels."""

    channels: tuple[str, ...] | None = setting(
        "The names of the channels, of those that the server's setting `alerts` has. Null for "
        "all of them, empty for none.",
        default=None,
        type=ConfigType.LIST,
    )
    failed: bool = setting(
        "Whether a run that has failed alerts, once it is not tried again; one that is tried "
        "for ever, as in real time, or has not got on for five minutes, once an hour.",
        default=True,
    )
    late: str | None = setting(
        "How long after its window was due a run of the schedule may not have succeeded; then "
        "it alerts, once. Null for as long as it likes.",
        default=None,
        validator=_DURATION,
    )
    empty: bool = setting("Whether a run that finds no records alerts.", default=False)
    balance: bool = setting(
        "Whether a run alerts of whose records some are unaccounted for: those that were read "
        "are not as many as were written, filtered and rejected.",
        default=True,
    )
    duration_factor: float | None = setting(
        "A run alerts that takes more than so many times the usual time, or less than that "
        "part of it: the median of the last 20 runs that succeeded over a window of about that "
        "length, once there are 5. Null for any time.",
        default=None,
        validator=_FACTOR,
    )
    rows_factor: float | None = setting(
        "The same for the records that a run reads; where the usual number is 0 none is "
        "unusual. Null for any number.",
        default=None,
        validator=_FACTOR,
    )


class JobSettings(RunSettings, group="Job"):
    """The keys of a job beside its copy and its schedule."""

    mode: Mode = setting(
        "offline reads windows, each once, by a schedule or by hand. realtime follows the "
        "source until the job is suspended, without a schedule; a job that was offline goes on "
        "behind the last window that its schedule has made.",
        default=Mode.OFFLINE,
    )
    boundaries: BoundaryKind = setting(
        "What the bounds of its windows are: times, positions of the source (offset), values "
        "of a column, or versions (snapshot). Windows of a schedule are of times.",
        default=BoundaryKind.TIME,
    )
    approvers: tuple[str, ...] = setting(
        "Who may approve it; it does not run before. Empty where nobody is asked.",
        default=(),
        type=ConfigType.LIST,
    )


_KEYS = {*JobSettings.config_def().keys}
_COPY = ("name", "source", "sinks", "transforms", "predicates")
_ALIKE = 0.75
_SECTIONS = ("schedule", "alerts")
"""What has keys of its own below it."""


def read_job(document: Mapping[str, Any]) -> JobSpec:
    """Return what a job's document says. Raises ConfigErrors with all that is wrong."""
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
    """Take keys from a copy that look like a job's own, and yield an error for each."""
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
            problem="A job copies from one source straight into its sinks.",
            fix="Give it a source: and sinks:, and no topic: between.",
            field="topic" if first.topics else "source",
        )
    if _TURNING.search(first.name):  # connectors may have them, as in Kafka Connect
        raise ConfigError(
            problem="The name has signs that turn the direction of text.",
            fix="Leave out U+202A to U+202E and U+2066 to U+2069.",
            field="name",
        )
    return first


def _section(kind: type[_Section], name: str, section: object) -> _Section:
    """Return the settings of a section. Raises ConfigErrors with the full names of its keys."""
    keys = kind.config_def()
    if not isinstance(section, dict):
        fix = f"Write some of these below it: {', '.join(keys.keys)}."
        raise ConfigError(problem="Expected a section of keys.", fix=fix, field=name)
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
            problem="A schedule has one of every, cron, once and after.",
            fix="Write one of them, such as every: 1 hour.",
            field="schedule",
        )
    if timing.every is not None:
        return _interval("every", timing.every)
    return Once() if timing.cron is None else Cron(timing.cron)


def _unfit(timing: ScheduleSettings, kind: BoundaryKind) -> Iterator[ConfigError]:
    if timing.after is not None and (timing.every or timing.cron or timing.once):
        fix = "Leave out every, cron and once."
        yield ConfigError("It has the windows of another job.", fix=fix, field="schedule.after")
    if timing.after is not None and timing.engine is not None:
        problem = "The success of another job makes its runs, so that nothing has to wake it."
        yield ConfigError(problem, fix="Leave out engine.", field="schedule.engine")
    if timing.after is None and kind is not BoundaryKind.TIME:
        yield ConfigError(
            problem=f"The windows of a schedule are of times, not of kind {kind}.",
            fix="Set boundaries to time, or leave the schedule out and give bounds by hand.",
            field="boundaries",
        )
    if timing.once and not timing.start:
        fix = "Set the start of the window."
        problem = "A window that comes once has no start."
        yield ConfigError(problem, fix=fix, field="schedule.start")


def _unfit_for_realtime(settings: JobSettings, schedule: object) -> Iterator[ConfigError]:
    if schedule is not None:
        problem = "A job in real time has no windows, and so no schedule."
        yield ConfigError(
            problem, fix="Leave it out, or set mode to offline.", field="schedule"
        )
    if settings.timeout is not None:
        problem = "A job in real time has no end, and so no timeout."
        yield ConfigError(problem, fix="Leave it out, or set mode to offline.", field="timeout")


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
        fix = "Write how long an attempt may take, or leave it out."
        raise invalid(key, text, "No attempt ends in no time", fix=fix)
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
    """Return a document in JSON's types whose schedule says where it starts.

    That is written down once. What only YAML has, such as dates, becomes text.
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
    """Return what a document says, once all of it is checked.

    ``since`` is from when on it is read in real time, if it is. Raises ConfigErrors: with
    everything that is wrong.
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
    """Return what a document says, and what is wrong with its copy, whatever its bounds are."""
    spec = read_job(document)
    found = check_definition(spec.definition, registry).errors
    return spec, [*found, *plain_secrets(spec.definition, registry)]


def plain_secrets(definition: Definition, registry: Registry) -> Iterator[ConfigError]:
    """Yield an error for each secret that is written out.

    Guarantee 6: a job's document is shown as it was given, to whoever is to approve it.
    """
    for key, text, field in key_values(definition, registry):
        if registry.references.is_only(text):
            continue
        if key.type is ConfigType.PASSWORD or secrets_in(text):
            yield ConfigError(
                problem="A job holds no secret, as whoever approves it reads all of it.",
                fix="Write a reference, such as ${env:SHOP_PASSWORD}.",
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
            fix=f"Its kinds are: {kinds}.",
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
"""Bounds of each kind, by which a copy is asked whether it can be read between such."""


def bounded(definition: Definition, boundaries: Boundaries, registry: Registry) -> Definition:
    """Return a copy of what lies in boundaries only. Raises ConfigErrors."""
    source = definition.source
    assert source is not None
    require_plain(boundaries, registry)
    plugin = registry.source(source.plugin)
    bound = _filled(source, plugin, plugin.fill_in_boundaries, boundaries, registry)
    return replace(
        definition, source=bound, sinks=_filled_sinks(definition, boundaries, registry)
    )


def followed(definition: Definition, boundaries: Boundaries, registry: Registry) -> Definition:
    """Return a copy that reads what lies behind a lower bound, and goes on with what comes.

    Without a lower bound it is the copy as it is. Raises ConfigErrors.
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
    """Return a plugin with boundaries in its configuration. Raises ConfigErrors."""
    values, _ = registry.references.values(spec.config)
    try:
        filled = fill(plugin.config_def().parse(values), boundaries)
    except ConfigErrors as several:
        raise errors_at(several.errors, spec.place) from several
    except ConfigError as error:
        raise errors_at([error], spec.place) from error
    # What is a reference stays one: only what the bounds have changed is put in.
    changed = {key: value for key, value in filled.items() if values.get(key) != value}
    kept = {key: text for key, text in spec.config.items() if key in filled}
    return replace(spec, config={**kept, **changed})
