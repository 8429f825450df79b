"""Connectors and plugins as Kafka Connect's REST API shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.control import ConnectorView, TaskView
    from headrace.model import Connector, TaskConfig


def connector_json(
    found: Connector, tasks: Sequence[TaskConfig] | Sequence[TaskView]
) -> dict[str, Any]:
    """Return a connector: its configuration and the ids of its tasks."""
    return {
        "name": found.name,
        "config": dict(found.config),
        "tasks": [{"connector": found.name, "task": task.number} for task in tasks],
        "type": found.kind.value,
    }


def tasks_json(name: str, tasks: Sequence[TaskConfig]) -> list[dict[str, Any]]:
    """Return the tasks of a connector with their configurations."""
    return [
        {"id": {"connector": name, "task": task.number}, "config": dict(task.config)}
        for task in tasks
    ]


def status_json(view: ConnectorView, version: str) -> dict[str, Any]:
    """Return how a connector and its tasks are."""
    status = view.status
    return {
        "name": view.connector.name,
        "connector": {
            "state": status.state.value,
            "worker_id": status.worker,
            **({"trace": status.trace} if status.trace else {}),
            "version": version,
        },
        "tasks": [task_json(task, version) for task in view.tasks],
        "type": view.connector.kind.value,
    }


def task_json(task: TaskView, version: str) -> dict[str, Any]:
    """Return how a task is."""
    trace = task.status.trace
    return {
        "id": task.number,
        "state": task.status.state.value,
        "worker_id": task.worker,
        **({"trace": trace} if trace else {}),
        "version": version,
    }
