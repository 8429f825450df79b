"""Passwords that stand in configurations in plain are shown by no answer, and kept."""

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from headrace.control import ConfigVersions, Connectors
from headrace.control.config_infos import Masks
from headrace.plugins import Registry
from headrace.rest import Listener, Serving, connect_app
from headrace.sdk import ConfigError

HIDDEN = "[hidden]"
SECRET = "pl4in-of-the-tests"  # noqa: S105 - no secret
OTHER = "0ther-of-the-tests"
PLAIN = {
    "connector.class": "FileStreamSinkConnector",
    "topics": "lines",
    "file": "/tmp/never-written",  # noqa: S108 - nothing runs here
    "transforms": "look",
    "transforms.look.type": "Lookup",
    "transforms.look.url": f"jdbc:postgresql://me:{SECRET}@db:5432/x?password={SECRET}&a=b",
    "transforms.look.password": SECRET,
    "transforms.look.authorization": SECRET,
    "value.converter": "AvroConverter",
    "value.converter.schema.registry.url": "http://registry:8081",
    "value.converter.basic.auth.credentials.source": "USER_INFO",
    "value.converter.basic.auth.user.info": f"me:{SECRET}",
    "consumer.override.sasl.jaas.config": f"required password='{SECRET}';",
    "consumer.override.ssl.key.password": "${env:SEC_TESTS_KEY}",
    "my.api-key": SECRET,
    "note": "http://db:5432/a@b",
}


def test_what_is_shown_of_a_configuration() -> None:
    shown = Masks(Registry()).shown(PLAIN)
    assert SECRET not in str(shown)
    changed = {key: value for key, value in shown.items() if value != PLAIN[key]}
    assert changed == {
        "transforms.look.url": f"jdbc:postgresql://me:{HIDDEN}@db:5432/x?password={HIDDEN}&a=b",
        "transforms.look.password": HIDDEN,
        "transforms.look.authorization": HIDDEN,
        "value.converter.basic.auth.user.info": HIDDEN,
        "consumer.override.sasl.jaas.config": HIDDEN,
        "my.api-key": HIDDEN,
    }
    assert list(shown) == list(PLAIN)


def test_references_are_shown_and_what_is_around_them_is_not() -> None:
    given = {
        "a.password": "${env:X}",
        "b.password": "x${env:X}",
        "url": "jdbc:x://me:${env:X}@db?password=${env:X}",
    }
    assert Masks(Registry()).shown(given) == {**given, "b.password": HIDDEN}


@pytest.fixture(scope="module")
def url(connectors: Connectors) -> Iterator[str]:
    listener = Listener(port=0)
    with Serving(connect_app(connectors, listener), listener) as serving:
        serving.start()
        yield serving.url


@pytest.fixture
def config(connectors: Connectors) -> dict[str, str]:
    """Return what is stored of a new connector, which is named ``kept``."""
    if "kept" in connectors.names():
        connectors.delete("kept", "test")
    given = {
        "connector.class": "FileStreamSinkConnector",
        "topics": "lines",
        "file": "/tmp/never-written",  # noqa: S108 - nothing runs here
        "consumer.override.sasl.jaas.config": f"password='{SECRET}'",
        "db.url": f"postgresql://me:{SECRET}@db/x",
    }
    connectors.create("kept", given, "test")
    return stored(connectors)


def stored(connectors: Connectors) -> dict[str, str]:
    found = connectors.store.connector("kept")
    assert found is not None
    return dict(found.config)


def asked(url: str, method: str, path: str, body: Any = None) -> Any:
    answer = httpx2.request(method, f"{url}{path}", json=body, timeout=60)
    assert answer.status_code < 300, answer.text
    assert SECRET not in answer.text
    return answer.json() if answer.content else None


def test_no_answer_shows_a_password(url: str, config: dict[str, str]) -> None:
    assert SECRET in str(config)
    for path in (
        "/connectors/kept",
        "/connectors/kept/config",
        "/connectors/kept/tasks",
        "/connectors?expand=info&expand=status",
    ):
        asked(url, "GET", path)
    asked(url, "PUT", "/connectors/kept/config", config)
    asked(url, "PATCH", "/connectors/kept/config", {"note": "new"})
    validated = "/connector-plugins/FileStreamSinkConnector/config/validate"
    asked(url, "PUT", validated, {**config, "tasks.max": "many"})
    for body in ({"db.password": SECRET}, {**config, "name": "another"}):
        answer = httpx2.put(f"{url}/connectors/kept/config", json=body, timeout=60)
        assert answer.status_code == 400
        assert SECRET not in answer.text


def test_what_was_read_can_be_sent_back_changed_and_loses_no_password(
    url: str, connectors: Connectors, config: dict[str, str]
) -> None:
    read = asked(url, "GET", "/connectors/kept/config")
    assert read["db.url"] == f"postgresql://me:{HIDDEN}@db/x"
    asked(url, "PUT", "/connectors/kept/config", read)
    assert stored(connectors) == config
    asked(url, "PUT", "/connectors/kept/config", {**read, "file": "/tmp/other"})  # noqa: S108 - as above
    assert stored(connectors) == {**config, "file": "/tmp/other"}  # noqa: S108 - as above
    asked(url, "PATCH", "/connectors/kept/config", {"db.url": f"postgresql://me:{OTHER}@db/x"})
    assert stored(connectors)["db.url"] == f"postgresql://me:{OTHER}@db/x"
    asked(url, "PATCH", "/connectors/kept/config", {"db.url": "postgresql://db/x"})
    assert stored(connectors)["db.url"] == "postgresql://db/x"


def test_a_mask_of_nothing_is_refused(url: str, config: dict[str, str]) -> None:
    read = asked(url, "GET", "/connectors/kept/config")
    changed = {**read, "db.url": f"postgresql://me:{HIDDEN}@other/x"}
    del read["name"]
    for path, body in (("kept", changed), ("new", read), ("kept", {**read, "x": HIDDEN})):
        answer = httpx2.put(f"{url}/connectors/{path}/config", json=body, timeout=60)
        assert answer.status_code == 400, config
        assert "stands for a stored value" in answer.json()["message"]


def test_versions_hide_passwords_tell_their_changes_and_bring_them_back(
    connectors: Connectors, config: dict[str, str]
) -> None:
    connectors.patch("kept", {"db.url": f"postgresql://me:{OTHER}@db/x"}, "test")
    versions = ConfigVersions(connectors)
    hidden = f"postgresql://me:{HIDDEN}@db/x"
    [change] = versions.changes("kept", 1, 2)
    assert (change.key, change.before, change.after) == ("db.url", hidden, hidden)
    assert [each.config["db.url"] for each in versions.all("kept")] == [hidden, hidden]
    assert versions.get("kept", 1).config["db.url"] == hidden
    assert versions.steps("kept")[0][1] == ["db.url"]
    restored = versions.restore("kept", 1, "test")
    assert SECRET not in str(restored)
    assert stored(connectors) == config


def test_what_is_hidden_goes_into_no_preview_of_another_configuration(
    connectors: Connectors, config: dict[str, str]
) -> None:
    """With another address a preview would have sent a stored password there."""
    shown = connectors.masks.shown(config)
    assert HIDDEN in shown["db.url"]
    (sink,) = connectors.definition(shown).sinks
    assert SECRET in sink.config["db.url"]
    for changed in ({"file": "/tmp/other"}, {"note": "new"}, {"topics": "lines,others"}):  # noqa: S108
        with pytest.raises(ConfigError, match="all keys are unchanged") as refused:
            connectors.definition(shown | changed)
        assert SECRET not in str(refused.value)
    own = {key: value.replace(HIDDEN, OTHER) for key, value in shown.items()}
    (sink,) = connectors.definition(own | {"note": "new"}).sinks
    assert SECRET not in str(sink.config)
