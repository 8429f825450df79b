"""Connectors and plugins as RocketMQ Connect's REST API shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.control import in_rocketmq_words, to_rocketmq
from headrace.model import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.control import ConnectorView, TaskView
    from headrace.model import Connector, TaskConfig
    from headrace.sdk.config import ConfigInfos, ConfigKey


_POOLS = {
    TaskState.UNASSIGNED: ("pendingTasks", "PENDING"),
    TaskState.RESTARTING: ("pendingTasks", "PENDING"),
    TaskState.RUNNING: ("runningTasks", "RUNNING"),
    TaskState.PAUSED: ("runningTasks", "RUNNING"),
    TaskState.FAILED: ("errorTasks", "ERROR"),
}
"""Where RocketMQ Connect's worker keeps a task in our state, and the state it says then.

A paused task waits in its thread there.
"""


def connector_json(
    found: Connector, tasks: Sequence[TaskConfig] | Sequence[TaskView]
) -> dict[str, Any]:
    """Return a connector: its configuration and the ids of its tasks."""
    return {
        "name": found.name,
        "config": to_rocketmq(found.config),
        "tasks": [{"connector": found.name, "task": task.number} for task in tasks],
        "type": found.kind.value.upper(),
    }


def tasks_json(name: str, tasks: Sequence[TaskConfig]) -> list[dict[str, Any]]:
    """Return the tasks of a connector with their configurations."""
    return [
        {
            "id": {"connector": name, "task": task.number},
            "config": to_rocketmq(task.config),
        }
        for task in tasks
    ]


def status_json(view: ConnectorView) -> dict[str, Any]:
    """Return how a connector and its tasks are."""
    status = view.status
    return {
        "name": view.connector.name,
        "connector": {
            "state": status.state.value,
            "trace": status.trace or None,
            "workerId": status.worker,
        },
        "tasks": [task_json(task) for task in view.tasks],
        "type": view.connector.kind.value.upper(),
    }


def task_json(task: TaskView) -> dict[str, Any]:
    """Return how a task is."""
    return {
        "state": task.status.state.value,
        "trace": task.status.trace or None,
        "workerId": task.worker,
        "id": task.number,
    }


def allocated_json(
    views: Iterable[ConnectorView], planned: Mapping[str, Sequence[TaskConfig]]
) -> dict[str, Any]:
    """Return the tasks of connectors, with their plans by connector, by how far they are."""
    pools = ("pendingTasks", "runningTasks", "stoppingTasks", "stoppedTasks", "errorTasks")
    found: dict[str, list[dict[str, Any]]] = {pool: [] for pool in pools}
    for view in views:
        tasks = planned.get(view.connector.name, ())
        configs = {task.number: task.config for task in tasks}
        for task in view.tasks:
            pool, state = _POOLS.get(task.status.state, ("stoppedTasks", "STOPPED"))
            found[pool].append(
                {
                    "connectorName": view.connector.name,
                    "config": to_rocketmq(configs.get(task.number, {})),
                    "taskState": state,
                }
            )
    return found


def key_json(key: ConfigKey, config: Mapping[str, str]) -> dict[str, Any]:
    """Return the definition of a key."""
    return {
        "name": in_rocketmq_words(key.name, config),
        "type": key.type.value,
        "required": key.required,
        "defaultValue": key.default_text,
        "importance": key.importance.value,
        "documentation": key.doc,
        "group": key.group,
        "orderInGroup": key.order,
        "width": key.width.value,
        "displayName": key.display_name,
        "dependents": [in_rocketmq_words(each, config) for each in key.dependents],
    }


def found_json(infos: ConfigInfos, config: Mapping[str, str]) -> dict[str, Any]:
    """Return what a check of a configuration found, key by key."""
    configs = []
    for value in infos.values:
        key = infos.keys.get(value.name)
        configs.append(
            {
                "definition": None if key is None else key_json(key, config),
                "value": {
                    "name": in_rocketmq_words(value.name, config),
                    "value": None if key is None else value.to_kafka_json(key.type)["value"],
                    "recommendedValues": [str(each) for each in value.recommended_values],
                    "errors": [in_rocketmq_words(e.problem, config) for e in value.errors],
                    "visible": value.visible,
                },
            }
        )
    return {
        "name": infos.name,
        "errorCount": len(infos.errors),
        "groups": list(infos.groups),
        "configs": configs,
    }
