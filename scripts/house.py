"""Prints figures of the structure of ``src``, to compare two states of it."""

from __future__ import annotations

import ast
import io
import json
import sys
import tokenize
import tomllib
from collections import Counter, defaultdict
from graphlib import CycleError, TopologicalSorter
from itertools import combinations
from pathlib import Path
from statistics import median

import grimp

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = sorted(p.parent.name for p in (ROOT / "src").glob("*/__init__.py"))
WINDOW = 6
"""So many lines that are alike, but for blanks and comments, are a duplicate."""


def private_functions(tree: ast.Module, source: str) -> tuple[int, int]:
    """Return how many private module functions there are, and how many are used once."""
    names = [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("_")
    ]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    used = Counter(token.string for token in tokens if token.type == tokenize.NAME)
    # One use beside the definition.
    return len(names), sum(used[name] - 1 == 1 for name in names)


def exported(package: Path) -> int:
    """Return how many names a package's stub lists."""
    body = ast.parse((package / "__init__.pyi").read_text("utf-8")).body
    return sum(len(node.names) for node in body if isinstance(node, ast.ImportFrom))


def cycle() -> list[str]:
    """Return the modules of one cycle of imports at run time; none if there is no cycle."""
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def duplicates(sources: dict[Path, str]) -> int:
    """Return how many pairs of places have the same lines, as many as ``WINDOW`` or more."""
    places: defaultdict[tuple[str, ...], list[tuple[Path, int]]] = defaultdict(list)
    for path, source in sources.items():
        code = [(n, line.strip()) for n, line in enumerate(source.splitlines())]
        code = [
            (n, line)
            for n, line in code
            if line and not line.startswith(("#", "from ", "import ", '"""'))
        ]
        for first in range(len(code) - WINDOW + 1):
            lines = tuple(line for _, line in code[first : first + WINDOW])
            if sum(map(len, lines)) > 20 * WINDOW // 2:
                places[lines].append((path, first))
    pairs: set[tuple[Path, int, Path, int]] = set()
    for found in places.values():
        for (one, a), (other, b) in combinations(found, 2):
            pairs.add((one, a, other, b))
    # Windows that follow each other are one duplicate.
    return sum((one, a - 1, other, b - 1) not in pairs for one, a, other, b in pairs)


def figures() -> dict[str, object]:
    """Return all figures by their names."""
    paths = sorted((ROOT / "src").rglob("*.py"))
    sources = {path: path.read_text("utf-8") for path in paths}
    lengths = {path: source.count("\n") for path, source in sources.items()}
    private = [private_functions(ast.parse(text), text) for text in sources.values()]
    largest = max(lengths, key=lambda path: lengths[path])
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    return {
        "lines": sum(lengths.values()),
        "modules": len(paths),
        "median module": median(lengths.values()),
        "largest module": f"{lengths[largest]} ({largest.relative_to(ROOT / 'src')})",
        "private functions": sum(count for count, _ in private),
        "private functions used once": sum(once for _, once in private),
        "names exported by the SDK": exported(ROOT / "src/headrace/sdk"),
        "layers": len(layers),
        "import cycle": " -> ".join(cycle()) or "none",
        "duplicates": duplicates(sources),
    }


if __name__ == "__main__":
    found = figures()
    if "--json" in sys.argv:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:30}{value}")
