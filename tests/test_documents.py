"""The documents say what the code does."""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path

import pytest
from hatch_build import for_index
from scripts import api_reference, charts, llms_txt
from scripts.prose import measure
from tests.support.documentation import blocks, landing_pages, pages_of

import kernelbox
from kernelbox.base._config import FORMAT_VARIABLE, TOKEN_VARIABLES, VARIABLES, KernelBoxConfig

DOCS = Path(__file__).parent.parent / "docs"

# A line with the path of an example, and the block that shows it.
_EXAMPLE = re.compile(r"^`(examples/\S+\.py)`:\n\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_configuration_lists_exactly_the_variables_that_the_code_reads() -> None:
    listed = re.findall(r"^\| `(KERNELBOX_\w+)`", (DOCS / "configuration.md").read_text(), re.MULTILINE)

    assert listed == [*(variable for variable, _, _ in VARIABLES), *TOKEN_VARIABLES, FORMAT_VARIABLE]


def test_configuration_states_the_defaults_that_the_code_has() -> None:
    stated = dict(re.findall(r"^\| `(KERNELBOX_\w+)` \| (\S+)", (DOCS / "configuration.md").read_text(), re.MULTILINE))
    defaults = KernelBoxConfig()

    for variable, field, parse in VARIABLES:
        if variable in ("KERNELBOX_REGISTRY_PATH", "KERNELBOX_RUNTIME_DIR", "KERNELBOX_HOME"):
            continue  # relative in the document, absolute in the code
        text = stated[variable].strip("`")
        value = getattr(defaults, field)
        assert (not value) if text == "(unset)" else (parse(variable, text) == value), variable


def test_kernels_lists_exactly_the_options_that_a_kernel_is_opened_with() -> None:
    options = list(inspect.signature(kernelbox.get_or_create).parameters)[1:]

    assert _table(DOCS / "kernels.md", "## Opening") == options
    assert list(inspect.signature(kernelbox.create).parameters)[1:] == options


def test_the_store_lists_exactly_the_fields_of_a_record() -> None:
    listed = _table(DOCS / "store-and-lifecycle.md", "## The record")

    assert sorted(listed) == sorted(kernelbox.KernelRecord.__match_args__)


def test_results_lists_every_field_of_a_result() -> None:
    listed = {*_table(DOCS / "results.md", "## Fields")}

    assert set(kernelbox.ExecutionResult.__match_args__) <= listed


def test_the_exceptions_that_are_listed_are_those_that_there_are() -> None:
    page = DOCS / "errors-and-timeouts.md"
    public = {name: value for name in kernelbox.__all__ if isinstance(value := getattr(kernelbox, name), type)}
    raised = {name: value for name, value in public.items() if issubclass(value, kernelbox.KernelBoxError)}

    rows = re.findall(
        r"^\| `(\w+)` \| (?:`(\w+)` )?\| ", page.read_text().partition("## What is raised\n")[2], re.MULTILINE
    )

    assert {name for name, _ in rows} == raised.keys() - {"KernelBoxError"}
    for name, also in rows:
        bases = [base.__name__ for base in raised[name].__mro__ if base.__module__ == "builtins"]
        assert bases[0] == (also or "Exception"), name
    for name in ("ApprovalRejectedError", "ToolError"):
        assert not issubclass(public[name], kernelbox.KernelBoxError)


def _table(page: Path, heading: str) -> list[str]:
    """Returns what is named in the first column of the table below a heading."""
    section = page.read_text().partition(f"{heading}\n")[2].partition("\n## ")[0]
    return [name for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)]


def test_the_public_names_are_exactly_those_that_resolve() -> None:
    assert kernelbox.__all__ == sorted(kernelbox.__all__)
    for name in kernelbox.__all__:
        assert getattr(kernelbox, name).__name__ == name


def test_links_between_documents_lead_somewhere() -> None:
    for page in [*DOCS.rglob("*.md"), DOCS.parent / "README.md"]:
        for target in re.findall(r"\]\(([^)#:]+\.md)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} → {target}"


def test_every_page_is_on_the_site() -> None:
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    (site,) = tomllib.loads((DOCS.parent / "zensical.toml").read_text()).values()

    assert set(pages_of(site["nav"])) == pages


def test_the_readme_of_the_package_has_no_link_that_an_index_cannot_follow() -> None:
    text = for_index((DOCS.parent / "README.md").read_text())

    assert "**Learn:**" not in text, "a list of links without links"
    assert text.partition("## Documentation\n\n")[2].startswith("All pages are in `docs/`")
    assert "Plain kernels run as the user who starts them" in text
    assert not re.findall(r"\]\((?!https?:)|<!--", text)


def test_with_an_address_the_links_of_the_package_are_whole() -> None:
    text = for_index("[quickstart](docs/quickstart.md), [elsewhere](https://example.org)", "https://example.com/")

    assert text == "[quickstart](https://example.com/docs/quickstart.md), [elsewhere](https://example.org)"


def test_the_readme_leads_to_every_tutorial_and_guide() -> None:
    linked = set(re.findall(r"\]\(docs/(\S+?\.md)\)", (DOCS.parent / "README.md").read_text()))
    guides = {
        page.relative_to(DOCS).as_posix() for folder in ("tutorial", "how-to") for page in (DOCS / folder).iterdir()
    }

    assert guides <= linked


@pytest.mark.parametrize(
    ("what", "claim"),
    [
        ("new kernel to first result", "starts {} times faster"),
        ("`1+1` in a live kernel", "runs {} times faster"),
    ],
)
def test_the_readme_has_the_figures_of_the_page_about_performance(what: str, claim: str) -> None:
    page, readme = (DOCS / "performance.md").read_text(), (DOCS.parent / "README.md").read_text()
    ours, jupyter, old, _ = charts.bars(page, what)
    times = dict(re.findall(rf"^\| {re.escape(what)} \| [^|]+ \| (\w+)[^|]*\| (\S+ ms) \|", page, re.MULTILINE))
    row = next(line for line in readme.splitlines() if line.startswith(f"| {what} |")).split(" | ")

    assert round(float(row[1].removesuffix(" ms")), 1) == round(float(ours.label.removesuffix(" ms")), 1)
    assert row[2:5] == [old.label, f"{times['ipybox']} ¹", times["jupyter_client"]]
    for text in (page, readme, (DOCS / "index.md").read_text()):
        assert claim.format(jupyter.times) in text


def test_the_api_reference_is_what_the_docstrings_say() -> None:
    assert (DOCS / "reference" / "api.md").read_text() == api_reference.page()  # python scripts/api_reference.py


def test_the_chart_shows_the_figures_of_the_page() -> None:
    page = (DOCS / "performance.md").read_text()

    assert (DOCS / "pictures" / "speed.svg").read_text() == charts.draw(page)  # python scripts/charts.py


def test_the_list_for_models_names_every_page_with_what_it_is_for() -> None:
    listed = dict(re.findall(r"^- \[.*?\]\((\S+)\): (.*)$", llms_txt.text(), re.MULTILINE))

    assert listed.keys() == {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} - {"index.md"}
    for page, purpose in listed.items():
        assert re.match(r"[\w`].{15}", purpose), f"{page} does not begin with what it is for"


@pytest.mark.parametrize("page", landing_pages(), ids=lambda page: page.name)
def test_a_page_that_people_read_first_has_short_sentences(page: Path) -> None:
    prose = measure(page.read_text())

    assert prose.words_per_sentence < 17
    assert prose.commas_per_sentence < 1.3


@pytest.mark.parametrize("page", landing_pages(), ids=lambda page: page.name)
def test_a_page_that_people_land_on_has_much_code(page: Path) -> None:
    assert measure(page.read_text()).blocks_per_thousand_words >= 10


# Packages that examples use, and that kernelbox does not bring.
_OF_OTHERS = r"numpy|pandas|matplotlib|plotly|polars|tqdm|pytest|nbclient|papermill|openai|anthropic"


def test_a_page_says_how_to_install_what_its_code_imports() -> None:
    for page in DOCS.rglob("*.md"):
        code = "\n".join(block.code for block in blocks(page) if block.language == "python")
        used = {*re.findall(rf"(?:import|from) ({_OF_OTHERS})\b", code)}
        used |= {*re.findall(rf'PRELOAD"\] = "({_OF_OTHERS})\b', code)}
        named = " ".join(re.findall(r"pip install[^`\n]*", page.read_text()))

        assert {package for package in used if package not in named} == set(), page.name


def test_troubleshooting_quotes_messages_that_the_code_has() -> None:
    source = "\n".join(path.read_text() for path in (DOCS.parent / "src").rglob("*.py"))
    quoted = re.findall(r"^\| `([^`]+)` \|", (DOCS / "troubleshooting.md").read_text(), re.MULTILINE)

    assert quoted
    for message in quoted:
        # A message may be put together from several parts: each of its first words is in one.
        assert message.partition("(")[0].strip() in source or message in _OF_THE_SYSTEM, message


# What Linux, pip and Python say, and steps of the sandbox that end in what Linux says.
_OF_THE_SYSTEM = {
    "externally-managed-environment",
    "ensurepip is not available",
    "requires a different Python",
    "No matching distribution found for kernelbox>=0.2",
    "cannot import name 'Kernel' from 'kernelbox'",
    "CERTIFICATE_VERIFY_FAILED",
    "invalid peer certificate: UnknownIssuer",
    "kernelbox: command not found",
    "Read-only file system",
    "unshare failed: Operation not permitted",
    "Landlock failed",
    "use one of python3",
}


def test_every_file_and_folder_that_the_design_names_exists() -> None:
    source = DOCS.parent / "src" / "kernelbox"
    for page in [DOCS / "design.md", *(DOCS / "design").glob("*.md")]:
        named = re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.py)?)`", page.read_text())
        for path in named:
            root = DOCS.parent if path.startswith("tests/") else source
            assert (root / path).exists(), f"{page.name} names {path}"


def test_an_example_in_a_document_is_the_example_file_word_for_word() -> None:
    shown = [block for page in DOCS.glob("*.md") for block in _EXAMPLE.findall(page.read_text())]

    assert len(shown) == 8
    for path, code in shown:
        assert code == (DOCS.parent / path).read_text(), path


def test_documents_read_the_same_in_the_repository_as_on_the_site() -> None:
    for page in DOCS.rglob("*.md"):
        found = re.findall(r'^(?:-+8<-+|=== "|!!! |\?\?\? ).*', page.read_text(), re.MULTILINE)
        assert not found, page.name


def test_no_page_installs_the_program_that_had_this_name_before() -> None:
    """Versions below 0.2 are KernelBox 0.1, which a package index gives to those who ask for no version."""
    pages = [DOCS.parent / "README.md", *DOCS.rglob("*.md")]
    lines = [
        line for page in pages for line in re.findall(r"^\$ pip install .*kernelbox.*$", page.read_text(), re.MULTILINE)
    ]

    assert len(lines) > 10
    assert [line for line in lines if not re.search(r"'kernelbox(\[\w+\])?>=0\.2'", line)] == []
