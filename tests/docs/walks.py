"""What a walk through the code passes, as it is measured."""

import ast
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, Self

import headrace

SRC = Path(headrace.__file__).parents[1]
WORDS = ("headrace/sdk/", "headrace/model/")
"""Where the values are defined that steps hand to each other."""


class Walk:
    """Notes which functions of src are called in this thread, in order, and from where.

    Functions without a name and those within others belong to whoever holds them, and
    properties are values.
    """

    def __init__(self) -> None:
        self.callers: dict[tuple[str, str], set[str]] = defaultdict(set)
        for file in SRC.rglob("*.py"):  # now: what is profiled is too deep to parse in
            _properties(file.relative_to(SRC).as_posix())

    def __enter__(self) -> Self:
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    @property
    def modules(self) -> set[str]:
        return {module for module, _ in self.callers}

    @property
    def steps(self) -> dict[tuple[str, str], None]:
        """The functions that another module calls, in the order of their first calls."""
        return {
            key: None
            for key, callers in self.callers.items()
            if callers - {key[0]} and not key[0].startswith(WORDS)
        }

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        module, name = _module(code.co_filename), code.co_qualname
        if event != "call" or module is None or "<" in name or name in _properties(module):
            return
        caller = frame.f_back
        while caller is not None and _module(caller.f_code.co_filename) is None:
            caller = caller.f_back
        by = None if caller is None else _module(caller.f_code.co_filename)
        self.callers[module, name].add(by or "")


@cache
def _module(file: str) -> str | None:
    path = Path(file)
    return path.relative_to(SRC).as_posix() if path.is_relative_to(SRC) else None


@cache
def _properties(module: str) -> set[str]:
    tree = ast.parse((SRC / module).read_text())
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return {
        f"{each.name}.{node.name}"
        for each in classes
        for node in each.body
        if isinstance(node, ast.FunctionDef)
        and any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
    }
