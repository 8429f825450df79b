"""Each action of a server's API has a command, and a page that shows what it prints."""

import re
from pathlib import Path

from tests.contract.connect_server import Server

from headrace.rest.connect import connect_api

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "explanation" / "actions-and-commands.md"
_ROW = re.compile(
    r"^\| `([A-Z]+ /\S*)` \| `(headrace [^`]+)` \| \[[^]]+\]\((\S+)\) \|$", re.MULTILINE
)
_ACTION = re.compile(r"^### ([A-Z]+ /\S+)$", re.MULTILINE)
_CONSOLE = re.compile(r"^```console[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PORT = re.compile(r"-port (\d+)")


def rows() -> list[tuple[str, str, Path]]:
    found = _ROW.findall(PAGE.read_text())
    return [(action, command, PAGE.parent / page) for action, command, page in found]


def commands(page: Path) -> list[str]:
    """Return the lines of a page that are typed."""
    blocks = "".join(_CONSOLE.findall(page.read_text())).splitlines()
    return [line for line in blocks if line.startswith("$ ")]


def test_each_action_of_both_apis_is_listed_once() -> None:
    paths = connect_api(Server().connectors).openapi()["paths"]
    wanted = {f"{method.upper()} {path}" for path, each in paths.items() for method in each}
    wanted |= set(_ACTION.findall((DOCS / "reference" / "rest-v1.md").read_text()))
    wanted.add("GET /metrics")
    wanted.remove("POST /v1/jobs/{name}/callback")  # which has tokens that no person has
    assert sorted(action for action, _, _ in rows()) == sorted(wanted)


def test_each_command_of_the_list_is_run_on_the_page_that_is_named() -> None:
    wrong = [
        f"{command} is not in {page.name}"
        for _, command, page in rows()
        if not any(f"{command} " in f"{line} " for line in commands(page))
    ]
    assert wrong == []


def test_no_two_pages_listen_on_the_same_port() -> None:
    pages = [*DOCS.glob("how-to/*.md"), *DOCS.glob("tutorials/*.md"), DOCS.parent / "README.md"]
    used = [
        (port, page.name)
        for page in pages
        for line in commands(page)
        for port in _PORT.findall(line)
    ]
    # Tests run side by side, and so do the pages.
    assert len({port for port, _ in used}) == len(used), sorted(used)
