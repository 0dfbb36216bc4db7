"""The pages in examples/docs say what the code says."""

from __future__ import annotations

import importlib
import re
import shlex

import pytest
import typer
import yaml
from _support.paths import REPOSITORY

import lm_eval_bayes
from lm_eval_bayes.cli.main import app

EXAMPLES = REPOSITORY / "examples"
DOCS = EXAMPLES / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
AGAIN = "run `python examples/make_docs.py --write`"


def commands(group=None, path=()):
    """Every command that does something, by its words."""
    group = typer.main.get_command(app) if group is None else group
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(commands())


@pytest.fixture
def make_docs(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("make_docs")


# -- pages of commands ---------------------------------------------------------------------------


def test_every_command_has_the_page_that_the_code_makes(make_docs):
    created = make_docs.pages()
    stale = [path.name for path, message in created.items() if not path.is_file()]
    stale += [
        p.name for p, message in created.items() if p.is_file() and p.read_text("utf-8") != message
    ]
    assert (stale, make_docs.gone(created)) == ([], []), AGAIN


def test_a_page_tells_of_every_argument_and_option():
    index = (DOCS / "commands" / "README.md").read_text(encoding="utf-8")
    common = index.partition("## Common options\n")[2].partition("\n## ")[0]
    for words, command in COMMANDS.items():
        page = (DOCS / "commands" / f"{words[0]}.md").read_text(encoding="utf-8")
        if len(words) > 1:
            page = page.partition(f"## lm-eval-bayes {' '.join(words)}\n")[2].partition("\n## ")[0]
        for parameter in command.params:
            if parameter.param_type_name == "option":
                name = max(parameter.opts, key=len)
                is_own = f"| `{parameter.opts[0]}" in page
                is_common = re.search(rf"common options.*`{name}`", page) and f"`{name}" in common
                assert is_own or is_common, (words, name)
            else:
                assert f"| `{parameter.metavar.rstrip('.')}" in page, (words, parameter.name)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_has_two_examples_that_its_parser_takes(words, make_docs):
    _, lines = make_docs.help_parts(COMMANDS[words])
    examples = "\n".join(lines).replace("\\\n", " ").splitlines()
    assert len(examples) >= 2
    for example in examples:
        given = shlex.split(re.split(r" [|>] ", example)[0], comments=True)
        assert tuple(given[: len(words) + 1]) == ("lm-eval-bayes", *words)
        context = COMMANDS[words].make_context(words[-1], given[len(words) + 1 :])
        assert context.params or not COMMANDS[words].params


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_an_option_says_what_it_takes_and_what_it_does(words):
    command = COMMANDS[words]
    context = command.make_context(words[-1], [], resilient_parsing=True)
    assert command.help.split("\n")[0].endswith(".")
    for parameter in command.params:
        message = re.sub(r"\s*\[default: .*\]$", "", parameter.help)
        assert message.endswith("."), parameter.name
        if parameter.param_type_name == "option" and not parameter.is_flag:
            # a word of ours, or the choices; not the name of a type
            shown = parameter.get_help_record(context)[0].split()[-1]
            assert parameter.metavar or "|" in shown, parameter.name


def test_what_markdown_would_take_for_its_own_is_escaped(make_docs):
    assert make_docs.text("samples_*.jsonl or <b> of `a|b`, --json") == (
        "samples\\_\\*.jsonl or \\<b\\> of `a`\\|`b`, `--json`"
    )


# -- the other pages -----------------------------------------------------------------------------


LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def anchors(page):
    """Return the names of a page's headings, as sites and repositories make them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    words = [re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings]
    return {re.sub(r"[-\s]+", "-", heading) for heading in words}


@pytest.mark.parametrize(
    "page",
    [*PAGES, *sorted(REPOSITORY.glob("*.md")), *sorted(EXAMPLES.glob("*/README.md"))],
    ids=lambda path: str(path.relative_to(REPOSITORY)),
)
def test_links_lead_somewhere_and_pictures_have_words(page):
    for bang, words, target in LINK.findall(page.read_text(encoding="utf-8")):
        if not target.startswith("https://"):
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            assert file.is_file(), target
            assert not anchor or anchor in anchors(file), target
            # the site has the pages and nothing else of the repository
            assert page not in PAGES or file.is_relative_to(DOCS), target
        assert len(words) > (40 if bang else 0), target


def test_the_site_has_every_page_and_fails_at_a_dead_link():
    site = yaml.safe_load((DOCS / "mkdocs.yml").read_text(encoding="utf-8"))
    listed = re.findall(r"[\w/]+\.md", str(site["nav"]))
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in PAGES)
    assert set(site["validation"]["links"].values()) == {"warn"}


def test_the_map_of_the_house_names_files_that_exist():
    text = (REPOSITORY / "CONTRIBUTING.md").read_text("utf-8")
    chapter = re.search(r"\n## Where a change goes\n(.*?)\n## ", text, flags=re.DOTALL)[1]
    for path in re.findall(r"`([a-z_/]+(?:\.py|\.html|/))`", chapter):
        in_a_room = (REPOSITORY / "lm_eval_bayes").glob(f"**/{path.rstrip('/')}")
        assert (REPOSITORY / path).exists() or any(in_a_room), path


#: Words, as `wc -w` counts them: of README and the pages together, and of a command's prose.
MOST_WORDS, MOST_WORDS_OF_A_COMMAND = 15_000, 150


def test_the_docs_are_short(make_docs):
    pages = [REPOSITORY / "README.md", *DOCS.glob("*.md")]
    assert len(pages) == 1 + 12
    assert sum(len(page.read_text("utf-8").split()) for page in pages) <= MOST_WORDS
    assert (REPOSITORY / "README.md").stat().st_size <= 9_000
    for words, command in COMMANDS.items():
        prose, _ = make_docs.help_parts(command)
        assert len(" ".join(prose).split()) <= MOST_WORDS_OF_A_COMMAND, words


# -- CITATION.cff --------------------------------------------------------------------------------


def test_the_citation_is_complete():
    cited = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["cff-version"] == "1.2.0"
    assert {"message", "title", "authors", "type", "license"} <= cited.keys()
    assert cited["version"] == lm_eval_bayes.__version__
    assert f'license = "{cited["license"]}"' in (REPOSITORY / "pyproject.toml").read_text("utf-8")
    assert all({"name"} <= author.keys() for author in cited["authors"])
    papers = {}
    for reference in cited["references"]:
        assert reference["type"] in ("article", "conference-paper")
        assert ("conference" in reference) == (reference["type"] == "conference-paper")
        assert all(a.keys() == {"family-names", "given-names"} for a in reference["authors"])
        assert isinstance(reference["year"], int)
        (identifier,) = reference["identifiers"]
        assert identifier["type"] == "other"
        number = identifier["value"].removeprefix("arXiv:")
        assert reference["url"] == f"https://arxiv.org/abs/{number}"
        papers[number] = reference
    assert list(papers) == ["2510.04265", "2503.01747", "2504.21303"]
    sources = (REPOSITORY / "README.md").read_text(encoding="utf-8").partition("## Sources")[2]
    for number, paper in papers.items():
        first = paper["authors"][0]["family-names"]
        assert re.search(rf"\[{first} {paper['year']}\].*arXiv {number}", sources)
