"""Runs headrace's commands in this process, against a REST door that is served."""

import json
from dataclasses import dataclass, replace
from typing import Any

import pytest
from tests.contract.connect_server import Server

from headrace.cli import main

__all__ = ["Commands"]


@dataclass
class Commands:
    """Where commands are given; what they say is kept."""

    server: Server
    capsys: pytest.CaptureFixture[str]
    group: tuple[str, ...] = ()
    out: str = ""
    err: str = ""

    def of(self, *group: str) -> "Commands":
        """Give only commands of a group, whose name is left out."""
        return replace(self, group=group)

    def __call__(self, *arguments: str, code: int = 0) -> str:
        self.capsys.readouterr()
        done = main([*self.group, *arguments])
        self.out, self.err = self.capsys.readouterr()
        assert done == code, self.out + self.err
        return self.out

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", code=code))

    def lines(self, *arguments: str) -> list[Any]:
        return [json.loads(line) for line in self(*arguments, "--json").splitlines()]
