"""What configurations may reach of the machine: paths, Python and topics' names."""

import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.control import check_definition, try_transforms
from headrace.control.config_infos import config_infos
from headrace.control.validation import check_access
from headrace.model import Definition, PluginNotFoundError, PluginSpec, StepSpec
from headrace.plugins import Access, PluginKind, ProviderSettings, Registry
from headrace.sdk import ConfigError, ConfigErrors, ProviderContext
from headrace.sdk.config import ConfigDef, ConfigType, Meaning

SECRET = "hunter2-of-the-tests"  # noqa: S105 - no secret
OF_SETTINGS = {PluginKind.PROVIDER, PluginKind.REPORTER, PluginKind.ALERT_CHANNEL}
"""What is configured by who runs a server alone."""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


def allowed(data: Path, text: str) -> bool:
    try:
        Access(paths=(data,)).check_path(text, "path")
    except ConfigError as error:
        return (error.field, "allowed_paths" in error.fix) != ("path", True)
    return True


def test_paths_below_an_allowed_folder_and_of_other_systems_are_let_through(data: Path) -> None:
    for text in (
        f"{data}",
        f"{data}/in/*.csv",
        f"{data}/in/{{a,b}}/[0-9].csv",
        f"file://{data}/x",
        f"file:{data}/x",
        f"{data}/${{topic}}/x",
        f"{data}/a/../b",
        f"{data}/a?.csv",
        f"{data}/a#b",
        "s3a://bucket/key",
        "hdfs://host:9000/x",
    ):
        assert allowed(data, text), text


def test_files_that_data_name_are_below_an_allowed_folder(data: Path, tmp_path: Path) -> None:
    (data / "out").symlink_to(tmp_path)
    access = Access(paths=(data,))
    for inside in ("x", "name=${x}", "a*/../b?", "~x"):
        access.check_file(f"{data}/{inside}")
    for outside in ("../x", "out/x", "out/../x", "a*/../../x"):
        with pytest.raises(ConfigError, match="not among the paths") as caught:
            access.check_file(f"{data}/{outside}")
        assert "allowed_paths" in caught.value.fix
    Access().check_file("/etc/passwd")


def test_no_way_leads_out_of_an_allowed_folder(data: Path, tmp_path: Path) -> None:
    (data / "out").symlink_to(tmp_path)
    (data / "loop").symlink_to(data / "loop")
    (tmp_path / "data-too").mkdir()
    for text in (
        "/etc/passwd",
        "/",
        "relative.csv",
        "~/x",
        f"{data}/../secret",
        f"{data}/out/secret",
        f"{data}/out/*.csv",
        f"{data}-too/x",
        f"{data}/*/../../secret",
        f"{data}/{{a,../../etc}}/x",
        f"{data}/{{/etc/passwd,x}}",
        "{/etc/passwd,x}",
        "file:///etc/passwd",
        "FILE:/etc/passwd",
        f"file://{data}/%2e%2e/secret",
        f"har://file-{data}/x",
        "jar:file:/etc/x!/y",
        f"{data}/\0",
        "unknown:/etc/passwd",
        f"file:{data}/x?/../../../secret",
        f"file:{data}/x#/../../../secret",
        f"file:{tmp_path}/#/../data/x",
        f"file:{data}/x\ny",
        f"file:/{data}/../x",
        f"file://{str(data)[1:]}/x",
        f"{data}/${{topic}}/../../secret",
        f"{data}/${{a/../..}}/secret",
        f"{data}/${{a/../../}}/../secret",
        f"{data}/${{env:NAME}}",
        "${topic}://../../secret",
        "a://../../secret",
        "s3a://bucket/../../secret",
        f"{data}/*/${{a",
        f"\u2003{data}/x",
    ):
        assert not allowed(data, text), text


def test_the_home_folder_of_a_user_is_where_it_is(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(data)
    for text in ("~", "~/.ssh/id", "~/*.csv", "~nobody-of-this-name/x"):
        assert not allowed(data, text), text
    assert allowed(data, "x~/y")


@given(st.lists(st.sampled_from(["..", "a", ".", "b", "*", ""]), min_size=1, max_size=6))
def test_what_is_allowed_resolves_into_the_folder(parts: list[str]) -> None:
    folder = Path("/srv/headrace-tests/data")
    text = "/".join([str(folder), *parts])
    if allowed(folder, text):
        assert Path(text).resolve().is_relative_to(folder)


def test_without_limits_every_path_is_allowed() -> None:
    Access().check_path("/etc/passwd", "path")
    Access().check_code("code")


H2 = "com.h2database:h2:2.3.232"


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        (H2, True),
        (f" {H2}", True),
        ("org.example:any:1", True),
        ("com.h2database:h2:2.2.224", False),
        ("com.h2database:h2-tools:2.3.232", False),
        ("org.exampled:any:1", False),
        ("{data}/one.jar", True),
        ("{data}/in/two.jar", True),
        ("{data}/../three.jar", False),
        ("{data}/out/four.jar", False),
        ("{data}-too/one.jar", False),
        ("one.jar", False),
    ],
)
def test_drivers_are_those_of_patterns_and_folders(
    data: Path, tmp_path: Path, text: str, *, allowed: bool
) -> None:
    (data / "out").symlink_to(tmp_path)
    access = Access(drivers=("com.h2database:h2:2.3.*", "org.example:*", str(data)))
    with (
        nullcontext() if allowed else pytest.raises(ConfigError, match="JDBC drivers") as caught
    ):
        access.check_driver(text.format(data=data), "driver.coordinates")
    if caught is not None:
        assert "allowed_drivers" in caught.value.fix
    Access().check_driver(text, "driver.coordinates")


def test_a_server_lets_no_configuration_load_another_driver(data: Path) -> None:
    config = {
        "name": "c",
        "connector.class": "tests.integration.jdbc_source.JdbcTable",
        "topic": "rows",
        "url": "jdbc:h2:mem:x",
        "table": "allowed",
    }
    for key, value in (
        ("driver.coordinates", f"{H2},org.example:evil:1"),
        ("driver.path", f"{data}/evil.jar"),
    ):
        refused = {**config, key: value, "table": "refused"}
        registry = Registry(access=Access(paths=(data,), drivers=(H2,)))
        assert fields(refused, registry) == [key]
        definition = Definition("c", PluginSpec(config["connector.class"], {key: value}))
        with pytest.raises(ConfigErrors, match="not among the JDBC drivers"):
            check_access(definition, registry)
    registry = Registry(access=Access(drivers=(H2,)))
    assert fields({**config, "driver.coordinates": H2}, registry) == []
    # The plugin is not asked about what it may not use: it would be run.
    asked = sys.modules["tests.integration.jdbc_source"].JdbcTable.checked
    assert ("allowed" in asked, "refused" in asked) == (True, False)


def test_a_server_lets_no_database_be_reached_by_another_driver(data: Path) -> None:
    registry = Registry(access=Access(drivers=(H2,)))
    jdbc = "headrace_plugins.connectors.jdbc."
    for key, value in (
        ("driver.coordinates", "org.example:evil:1"),
        ("driver.path", f"{data}/evil.jar"),
    ):
        source, sink = (
            PluginSpec(jdbc + name, {key: value})
            for name in ("source.JdbcSource", "sink.JdbcSink")
        )
        good = PluginSpec("noop", {})
        for definition in (
            Definition("c", source, sinks=(good,)),
            Definition("c", PluginSpec("datagen", {}), sinks=(sink,)),
        ):
            with pytest.raises(ConfigErrors, match="not among the JDBC drivers"):
                check_access(definition, registry)


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("sqlite:{data}/a.db", True),
        ("jdbc:sqlite:{data}/a.db", True),
        ("sqlite:/etc/passwd", False),
        ("sqlite:{data}/../a.db", False),
        ("sqlite:file://{data}/%2e%2e/a.db", False),
        ("postgresql://h/d?sslrootcert={data}/ca.pem", True),
        ("postgresql://h/d?sslrootcert=system", True),
        ("postgresql://h/d?sslrootcert=/root/ca.pem", False),
        ("mysql://h/d?ssl_ca=/root/ca.pem", False),
        ("mysql://h/d?ssl-key=/root/key.pem", False),
        ("postgresql:///store", False),
        ("postgresql://h/d", True),
    ],
)
def test_a_server_lets_the_url_of_a_database_lead_to_no_other_file(
    data: Path, url: str, *, allowed: bool
) -> None:
    props = {"connection.url": url.format(data=data), "table.include.list": "t"}
    definition = Definition("c", PluginSpec("jdbc", props), sinks=(PluginSpec("noop", {}),))
    with nullcontext() if allowed else pytest.raises(ConfigErrors, match="not among the paths"):
        check_access(definition, narrow(data))


def flat(**more: str) -> dict[str, str]:
    return {
        "name": "c",
        "connector.class": "FileStreamSourceConnector",
        "topic": "lines",
        "file": "/etc/passwd",
        **more,
    }


def fields(config: dict[str, str], registry: Registry) -> list[str]:
    errors = config_infos(config, registry).errors
    return sorted(str(error.field) for error in errors)


def narrow(data: Path, *, serving: bool = True) -> Registry:
    providers = ProviderSettings(context=ProviderContext(serving=serving, shared=serving))
    return Registry(providers, Access(paths=(data,), code=False))


def test_a_configuration_that_reaches_further_is_refused_with_each_field(data: Path) -> None:
    chain = {
        "transforms": "py,look",
        "transforms.py.type": "Python",
        "transforms.py.code": "def f(record): return record",
        "transforms.look.type": "Lookup",
        "transforms.look.table": "/etc",
        "transforms.look.on": "id",
        "transforms.look.fields": "name string",
        "value.converter": "AvroConverter",
        "value.converter.schema.registry.url": "https://r",
        "value.converter.schema.registry.ssl.key.location": "/root/key.pem",
    }
    assert fields(flat(**chain), narrow(data)) == [
        "file",
        "transforms.look.table",
        "transforms.py.code",
        "value.converter.schema.registry.ssl.key.location",
    ]
    assert fields(flat(file=f"{data}/x"), narrow(data)) == []


def test_the_plan_checks_again_when_tasks_start(data: Path, tmp_path: Path) -> None:
    inside = data / "in"
    inside.mkdir()
    definition = Definition("c", PluginSpec("file", {"path": str(inside)}), topics=("t",))
    check_access(definition, narrow(data))
    inside.rmdir()
    inside.symlink_to(tmp_path)
    with pytest.raises(ConfigErrors, match="not among the paths"):
        check_access(definition, narrow(data))


def test_a_trial_of_transforms_runs_no_python_either(data: Path) -> None:
    def engine(*_: object) -> list[dict[str, object]]:
        raise AssertionError

    section = {"type": "Python", "code": "def f(record): return record"}
    with pytest.raises(ConfigErrors, match="may not run Python"):
        try_transforms(
            {"config": {"transforms": [section]}, "records": []}, narrow(data), engine
        )


def test_a_class_that_is_no_plugin_is_not_imported(data: Path) -> None:
    path = "tests.integration.hanging_source.Hanging"
    sys.modules.pop("tests.integration.hanging_source", None)
    assert fields(flat(**{"transforms": "a", "transforms.a.type": path}), narrow(data))
    with pytest.raises(PluginNotFoundError):
        narrow(data).find(path)
    assert "tests.integration.hanging_source" not in sys.modules


def test_keys_that_name_paths_say_so() -> None:
    silent = {
        (plugin.name, key.name)
        for kind in PluginKind
        for plugin in Registry().all_of(kind)
        if plugin.plugin.__module__.startswith("headrace_plugins.")
        and plugin.kind not in OF_SETTINGS
        for key in plugin.config_def().keys.values()
        if key.means is Meaning.PATH and key.meaning is None
    }
    assert silent == set()


def test_a_key_of_an_unaware_plugin_is_taken_for_a_path_by_its_name() -> None:
    keys = ConfigDef()
    for name in ("path", "ssl.truststore.location", "in.dir", "key_file", "schema", "profile"):
        keys = keys.define(name, ConfigType.STRING, None, doc="A text.")
    found = [key.name for key in keys.keys.values() if key.means is Meaning.PATH]
    assert found == ["path", "ssl.truststore.location", "in.dir", "key_file"]


@pytest.mark.parametrize("name", ["../../x", "a/b", "..", "a b", "x" * 250])
def test_a_name_that_no_topic_may_have_is_refused_wherever_it_stands(name: str) -> None:
    registry = Registry()
    assert fields(flat(topic=name), registry) == ["topic"]
    sink = {"name": "s", "connector.class": "FileStreamSinkConnector", "file": "/x"}
    assert fields({**sink, "topics": f"good,{name}"}, registry) == ["topics"]
    key = "errors.deadletterqueue.topic.name"
    dead = {"topics": "t", "errors.tolerance": "all", key: name}
    assert fields({**sink, **dead}, registry) == [key]
    for kind, target in (
        ("RegexRouter", {"regex": ".*", "replacement": name}),
        ("Route", {"routes": f"a -> good; b -> {name}"}),
        ("Shard", {"strategy": "hash", "field": "a", "shards": "2", "topic.format": name}),
        ("TimestampRouter", {"topic.format": name}),
    ):
        step = {f"transforms.r.{k}": v for k, v in {"type": kind, **target}.items()}
        found = fields(flat(transforms="r", **step), registry)
        assert len(found) == 1, (kind, found)
        assert str(found[0]).startswith("transforms.r.")


def test_a_hostile_name_of_a_topic_takes_no_longer_than_others() -> None:
    begun = time.process_time()
    assert fields(flat(topic="${a" * 70_000), Registry()) == ["topic"]
    assert time.process_time() - begun < 10


def test_templates_of_good_names_pass() -> None:
    step = {
        "transforms": "r,t",
        "transforms.r.type": "RegexRouter",
        "transforms.r.regex": "(?<a>.*)-(.*)",
        "transforms.r.replacement": "new_${a}.$2",
        "transforms.t.type": "TimestampRouter",
        "transforms.t.topic.format": "${topic}-${timestamp}",
    }
    assert fields(flat(**step), Registry()) == []


def test_a_reference_in_a_topics_name_is_refused_where_others_see_it(
    monkeypatch: pytest.MonkeyPatch, data: Path
) -> None:
    monkeypatch.setenv("CONNECT_SEC", SECRET)
    registry = narrow(data)
    config = flat(topic="${env:CONNECT_SEC}", file=f"{data}/x")
    errors = config_infos(config, registry).errors
    assert [error.field for error in errors] == ["topic"]
    assert SECRET not in str(errors)
    assert fields(config, Registry()) == []  # whoever runs it sees what is theirs


def test_a_refused_reference_is_listed_once(data: Path) -> None:
    text = "${file:/etc/passwd:a}${file:/etc/passwd:b}"
    for key in ("file", "topic"):
        config = {**flat(file=f"{data}/x"), key: text}
        errors = config_infos(config, narrow(data)).errors
        told = [e for e in errors if "paths that references may read" in e.problem]
        assert [error.field for error in told] == [key], errors


def test_steps_of_a_chain_are_checked_by_a_definitions_check(data: Path) -> None:
    steps = (StepSpec("p", "Python", {"code": "x"}, place="transforms[0]"),)
    definition = Definition("c", PluginSpec("datagen", {}), topics=("t",), steps=steps)
    errors = check_definition(definition, narrow(data)).errors
    assert "transforms[0].code" in [error.field for error in errors]
