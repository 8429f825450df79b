"""What a plan says before anything is done."""

from headrace.cli.gitops import There, plan
from headrace.control import Served

CONFIG = {"connector.class": "FileStreamSourceConnector", "file": "/in", "password": "x"}


def served(name: str, **more: str) -> Served:
    return Served(name=name, config={**CONFIG, "name": name, **more})


def there(name: str) -> dict[str, There]:
    config = {**CONFIG, "name": name, "password": "[hidden]"}
    return {name: There(config, "RUNNING")}


def test_a_connector_under_another_name_begins_anew_and_the_plan_says_so() -> None:
    for prune in (True, False):
        found = plan([served("new")], there("old"), prune=prune)
        assert "same configuration as old" in "\n".join(found.lines())
        assert found.to_json()[0]["same_config_as"] == "old"


def test_another_configuration_or_another_that_stays_is_no_new_name() -> None:
    changed = plan([served("new", file="/other")], there("old"), prune=True)
    stays = plan([served("new"), served("old")], there("old"), prune=True)
    for found in (changed, stays):
        assert "same configuration as" not in "\n".join(found.lines())
