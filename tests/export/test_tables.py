"""The leaderboard as CSV, JSON and Markdown: read back by what reads such files."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest
from _support.hostile import NAMES

from lm_eval_bayes._util.text import one_line, scope_label
from lm_eval_bayes.analysis.leaderboard import COMPARISONS, leaderboard
from lm_eval_bayes.analysis.pass_rows import pass_rows
from lm_eval_bayes.analysis.summary import summarise
from lm_eval_bayes.export.files import slug
from lm_eval_bayes.export.tables import csv_cell, table_text
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.intervals import IntervalSpec

QUESTIONS = ["p", "q", "r"]
#: The columns of a row of the pass family.
COLUMNS = ("", "_sd", "_low", "_high")
#: Right answers of eight to three questions, for as many models as there are names.
RIGHT = [(i % 9, (3 * i) % 9, (5 * i + 1) % 9) for i in range(len(NAMES))]


def run(model, right, task="a_b|c", n=8):
    trials = [[1] * c + [0] * (n - c) for c in right]
    return TaskRun.from_trials(model, task, trials, QUESTIONS)


@pytest.fixture(scope="module")
def board():
    runs = [run(name, right) for name, right in zip(NAMES, RIGHT, strict=True)]
    return leaderboard(runs, IntervalSpec(method="normal"))


@pytest.fixture(scope="module")
def best_first(board):
    """The names as they are shown, best first."""
    return [one_line(name) for name in board.models]


# -- for programs -------------------------------------------------------------------------------


def test_csv_holds_the_numbers_of_the_kernels(board):
    rows = list(csv.DictReader(io.StringIO(table_text([board], ".csv"))))
    assert len(rows) == len(NAMES)
    result = {row["model"]: row for row in rows}
    for name in ("Qwen/Qwen2.5-7B-Instruct", "數 Größe 🙂"):
        of_model = run(name, RIGHT[NAMES.index(name)])
        posterior = hbayes_at_n(of_model.outcomes)
        interval = posterior.interval(0.95, "normal")
        row = result[name]
        assert float(row["mean"]) == posterior.mu
        assert float(row["sd"]) == posterior.sigma
        assert (float(row["low"]), float(row["high"])) == (interval.low, interval.high)
        assert (row["n_min"], row["n_max"], row["questions"]) == ("8", "8", "3")
        assert (row["tokens"], row["seconds"]) == ("", "")
    assert [float(row["rank"]) for row in rows] == board.ranking.ranks.tolist()
    assert "p_best" not in rows[0]


def test_no_cell_of_a_csv_file_is_a_formula(board, best_first):
    rows = list(csv.reader(io.StringIO(table_text([board], ".csv"))))
    names = [row[2] for row in rows[1:]]
    for name, shown in zip(names, best_first, strict=True):
        assert name in (shown, f"'{shown}")
        # what OWASP names: = + - @, tab and carriage return, behind blanks as well
        assert name.lstrip()[0] not in "=+-@\t\r"
        assert not set(name) & set("\n\r\t\x00\x1b")
    for start in ("=", "+", "-", "@", "＝", "＋", "－", "＠", " =", "%", "|"):
        assert csv_cell(f"{start}1").startswith("'")
    assert csv_cell("plain-name") == "plain-name"


def test_a_single_model_is_compared_with_none():
    """The same in every format; a file of several boards has the columns of all."""
    alone = leaderboard([run("alone", (3, 4, 5))])
    both = leaderboard([run("alone", (3, 4, 5)), run("other", (5, 6, 5))])
    first, *others = csv.DictReader(io.StringIO(table_text([alone, both], ".csv")))
    places = json.loads(table_text([alone], ".json"))["leaderboards"][0]["places"][0]
    assert not [name for name in first if "setting" in name or "like" in name]
    for name in COMPARISONS:
        assert places[name] is None
        assert first.get(name, "") == ""
        assert all(row.get(name, "shown") for row in others)
    assert "Ranks" not in table_text([alone], ".md")
    assert "| other | 1 to 2 |" in table_text([both], ".md")


# -- the pass family ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def families():
    """A board of two models, of which one has eight trials and one has four, and their rows."""
    runs = [run("eight", (3, 4, 8), "aime"), run("four", (1, 4, 2), "aime", 4)]
    spec = IntervalSpec(level=0.9, method="normal")
    rows = {(r.task, r.model): pass_rows(r, spec)[1] for r in runs}
    return leaderboard(runs, spec), rows, {r.model: summarise(r, spec) for r in runs}


def test_csv_and_json_hold_the_family_as_the_summary_does(families):
    board, rows, summaries = families
    cells = {
        row["model"]: row for row in csv.DictReader(io.StringIO(table_text([board], ".csv", rows)))
    }
    (plain,) = json.loads(table_text([board], ".json", rows))["leaderboards"]
    for place in plain["places"]:
        expected = json.loads(json.dumps(summaries[place["model"]].to_dict()))
        assert place["posterior_rows"] == expected["posterior_rows"]
        for name, row in expected["posterior_rows"].items():
            ends = row["interval"]["low"], row["interval"]["high"]
            written = [float(cells[place["model"]][name + column]) for column in COLUMNS]
            assert written == [row["mu"], row["sigma"], *ends]
    assert [cells["four"][f"hpass@8{column}"] for column in COLUMNS] == [""] * 4


def test_tables_for_people_show_chosen_rows(families):
    board, _, summaries = families
    rows = {
        ("aime", model): pass_rows(summary.run, IntervalSpec(level=0.9), [2])[1]
        for model, summary in summaries.items()
    }
    posterior = rows["aime", "four"]["hpass@2"]
    text = table_text([board], ".md", rows)
    assert f"{posterior.mu:.3f} ± {posterior.sigma:.3f}" in text
    assert "pass" not in table_text([board], ".md").lower()


# -- for people ---------------------------------------------------------------------------------


def test_markdown_shows_every_name_as_it_is(board, best_first):
    """Read by a CommonMark parser with GitHub's tables, strikethrough and bare links."""
    markdown_it = pytest.importorskip("markdown_it", reason="markdown-it-py is not installed")
    parser = markdown_it.MarkdownIt("commonmark").enable(["table", "strikethrough"])
    tokens = parser.parse(table_text([board], ".md"))
    cells = [
        tokens[position + 1] for position, token in enumerate(tokens) if token.type == "td_open"
    ]
    assert len(cells) == 6 * len(NAMES)
    names = cells[::6]
    kinds = {child.type for cell in names for child in cell.children}
    assert kinds <= {"text", "text_special"}, kinds
    shown = ["".join(child.content for child in cell.children) for cell in names]
    assert shown == [name.strip() for name in best_first]
    heading = tokens[next(i for i, t in enumerate(tokens) if t.type == "heading_open") + 1]
    assert "".join(child.content for child in heading.children) == "a_b|c"


def test_markdown_leaves_nothing_that_github_would_link(board):
    table = table_text([board], ".md").split("\n\n")[1]
    assert not re.search(r"(?i)https?://|\bwww\.|[a-z]@[a-z]|(?<!\\):[a-z]+:|(?<!\\)@", table)


def test_what_stands_below_a_table_names_its_intervals():
    runs = [run("one", (8, 8, 7)), run("two", (0, 1, 0), n=10)]
    spec = IntervalSpec(0.9, "population", "beta")
    text = table_text([leaderboard(runs, spec)], ".md")
    assert f"90% credible intervals (beta) about {scope_label('population')}" in text


# -- names of files ------------------------------------------------------------------------------


def test_no_name_leads_out_of_its_folder():
    names = [*NAMES, "..", ".", "", "/", "a/../../b", "CON", "nul.txt", "data", "x" * 500, "é", "A"]
    slugs = [slug(name) for name in names]
    assert len(set(slugs)) == len(names)
    for result in slugs:
        assert re.fullmatch(r"[a-z0-9][a-z0-9_.-]*", result)
        assert ".." not in result
        assert len(result) <= 80
        assert result.split(".")[0] not in ("con", "nul")
        assert result != "data"
