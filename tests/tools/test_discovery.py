"""What a model finds of tools in a cell: ranked, short, bounded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.executor import run, text
from tests.support.tools import executing, generate, plain


def tool(name: str, description: str, **parameters: str) -> dict[str, Any]:
    properties = {key: {"type": "string", "description": value} for key, value in parameters.items()}
    return {
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": properties, "required": list(parameters)},
    }


ISSUE = {
    "type": "object",
    "properties": {"number": {"type": "integer"}, "state": {"enum": ["open", "closed"], "default": "open"}},
    "required": ["number"],
}
TOOLS = [
    {
        **tool("createIssue", "Opens a new issue.", title="What it is called.", body="The text, in Markdown."),
        "outputSchema": {"type": "object", "properties": {"issue": ISSUE}, "required": ["issue"]},
    },
    tool("list-issues", "Lists issues of a repository.", repo="owner/name"),
    tool("search_repositories", "Finds repositories by words.", query="What to look for."),
    tool("get_file", "Returns a file of a repository.", repo="owner/name", path="The path of the file."),
    *(tool(f"extra_{number}", "x" * 3000) for number in range(60)),
]


@pytest.fixture(scope="module")
def hub(shared_home: Path, key_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hub")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELBOX_HOME", str(shared_home))
        structured = {"createIssue": {"issue": {"number": 7}}}
        generate(root, plain(root, tools=TOOLS, structured=structured, instructions="Works with the hub."), "hub")
    return root


def ask(root: Path, *cells: str) -> list[str | None]:
    async def scenario() -> list[str | None]:
        async with executing(root) as executor:
            return [await text(executor, cell) for cell in ("import mcptools", *cells)][1:]

    return run(scenario)


def test_a_search_ranks_names_over_descriptions_over_parameters(home: Path, hub: Path) -> None:
    issues, repositories, path, nothing = ask(
        hub,
        "mcptools.search('create issue')",
        "mcptools.search('repository search')",
        "print(mcptools.search('path'))",
        "mcptools.search('weather')",
    )
    assert (issues or "").splitlines()[0] == "hub.createissue: Opens a new issue."
    assert (repositories or "").splitlines()[0] == "hub.search_repositories: Finds repositories by words."
    assert path == "hub.get_file: Returns a file of a repository."
    assert (nothing or "").startswith("nothing was found")


def test_help_shows_how_a_tool_is_called_and_that_call_works(home: Path, hub: Path) -> None:
    (shown,) = ask(hub, "print(mcptools.help('hub.createissue'))")
    assert (shown or "").splitlines() == [
        "from mcptools.hub.createissue import Params, run",
        "run(Params(title: str, body: str)) -> Result(issue: Issue)",
        "Issue(number: int, state: Literal['open', 'closed'] = 'open')",
        "",
        "Opens a new issue.",
        "  title: What it is called.",
        "  body: The text, in Markdown.",
    ]
    called, by_module = ask(
        hub,
        "from mcptools.hub.createissue import Params, run\nprint(run(Params(title='t', body='b')).issue.number)",
        "print(mcptools.help(mcptools.hub.get_file))",
    )
    assert called == "7"
    assert "run(Params(repo: str, path: str))" in (by_module or "")


def test_help_says_where_a_tool_takes_any_arguments(project: Path) -> None:
    (shown,) = ask(project, "print(mcptools.help('plain.echo'))")
    assert "run(Params(**others))" in (shown or "")


def test_a_server_is_an_attribute_of_the_package_without_being_imported(home: Path, hub: Path) -> None:
    names, called, missing = ask(
        hub,
        "print('hub' in dir(mcptools))",
        "tool = mcptools.hub.get_file\nprint(tool.run(tool.Params(repo='r', path='p')))",
        "try:\n    mcptools.hup\nexcept AttributeError as exc:\n    print(exc, hasattr(mcptools, '__wrapped__'))",
    )
    assert (names, called) == ("True", '{"path": "p", "repo": "r"}')
    assert missing == "module 'mcptools' has no server 'hup'; print it to see what it has False"


def test_the_built_in_help_shows_the_same_pages_and_not_what_is_inherited(home: Path, hub: Path) -> None:
    load = "from mcptools.hub.createissue import Params\n"
    things = ("mcptools", "mcptools.hub", "mcptools.hub.createissue", "'mcptools.hub.createissue'", "Params")
    shown = ask(hub, *(f"{load}help({thing})" for thing in things))
    assert [(text or "").partition("\n\n")[2].splitlines()[0] for text in shown] == [
        "hub: 64 tools: createissue, list_issues, search_repositories, get_file, " + shown_names(shown[0]),
        "hub.createissue: Opens a new issue.",
        "from mcptools.hub.createissue import Params, run",
        "from mcptools.hub.createissue import Params, run",
        "class Params(BaseModel):",
    ]
    assert all(len(text or "") < 4_200 for text in shown)
    ours, theirs, function = ask(
        hub, "help(mcptools.hub.get_file.run)", "import json\nhelp(json.loads)", "import colorsys\nhelp(colorsys)"
    )
    assert "Returns a file of a repository." in (ours or "")
    assert "Deserialize" in (theirs or "")
    assert "FUNCTIONS" in (function or "")


def shown_names(page: str | None) -> str:
    """Returns the rest of a list of tools, which is cut somewhere."""
    return (page or "").partition("get_file, ")[2].splitlines()[0]


def test_lists_stay_within_a_budget_however_much_a_server_says(home: Path, hub: Path) -> None:
    shown = ask(hub, "print(mcptools)", "print(mcptools.help('hub'))", "mcptools.search('extra', limit=100)")
    assert all(0 < len(text or "") <= 4_000 for text in shown)
    assert (shown[0] or "").startswith("hub: 64 tools: createissue, list_issues, ")


def test_a_tool_that_is_not_there_is_an_error_that_names_the_nearest(home: Path, hub: Path) -> None:
    (shown,) = ask(hub, "try:\n    mcptools.help('hub.issue')\nexcept LookupError as exc:\n    print(exc)")
    assert "there is no tool 'hub.issue'" in (shown or "")
    assert "hub.createissue" in (shown or "")


@pytest.mark.parametrize("name", ["search", "help", "install", "annotations"])
def test_a_server_may_have_the_name_of_what_the_root_has(home: Path, tmp_path: Path, name: str) -> None:
    generate(tmp_path, plain(tmp_path, tools=[tool("find", "Finds it.")]), name)
    assert ask(
        tmp_path,
        f"from mcptools.{name}.find import Params, run\nprint(run(Params()))",
        "mcptools.search('finds')",
        f"mcptools.help('{name}')",
    ) == ["{}", f"{name}.find: Finds it.", f"{name}.find: Finds it."]


def test_the_package_of_a_server_lists_its_tools_and_imports_them_when_used(home: Path, hub: Path) -> None:
    doc, missing = ask(
        hub,
        "import mcptools.hub\nprint(mcptools.hub.__doc__[:40])\nprint(mcptools.hub.get_file.Params.__name__)",
        "try:\n    mcptools.hub.nothing\nexcept AttributeError as exc:\n    print(exc)",
    )
    assert (doc or "").startswith("Works with the hub.\n\ncreateissue: Opens")
    assert (doc or "").endswith("Params")
    assert missing == "module 'mcptools.hub' has no tool 'nothing'"
