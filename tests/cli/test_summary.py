"""`lm-eval-bayes summary`: a real run of a group, matrices and counts, and what is refused."""

from __future__ import annotations

import glob
import json
import re
from pathlib import Path

import numpy as np
import pytest
from _support.command_line import answer
from _support.command_line import called as lmeb
from _support.harness_command import lm_eval_command
from _support.paths import REPOSITORY
from _support.saved_matrices import HOSTILE, outcomes, saved
from _support.tables import write_rows

from lm_eval_bayes.analysis.summary import summarise
from lm_eval_bayes.runs.reader import read_runs

GROUP = """\
group: demo_both
task: [demo_arithmetic_bayes, demo_few]
aggregate_metric_list:
  - metric: !function lm_eval_bayes.tasks.HBAYES_AT_N
    weight_by_size: true
  - metric: !function lm_eval_bayes.tasks.BAYES_AT_N
    weight_by_size: true
"""
FEW = """\
include: {demo}
task: demo_few
custom_dataset: !function few.load
"""
LOAD = """\
from lm_eval_bayes.tasks import demo_questions

def load(**_):
    return {"test": demo_questions()["test"].select(range(5, 17))}
"""


@pytest.fixture(scope="module")
def grouped(tmp_path_factory):
    """Run the harness on a group of two tasks of different sizes; return its output folder."""
    folder = tmp_path_factory.mktemp("grouped")
    demo = REPOSITORY / "task_configs" / "demo" / "demo_arithmetic_bayes.yaml"
    (folder / "tasks").mkdir()
    (folder / "tasks" / "few.yaml").write_text(FEW.format(demo=demo))
    (folder / "tasks" / "few.py").write_text(LOAD)
    (folder / "tasks" / "both.yaml").write_text(GROUP)
    lm_eval_command(
        *("--model", "biased_coin", "--model_args", "beta=2:3", "--tasks", "demo_both"),
        *("--include_path", folder / "tasks", "--output_path", folder / "out", "--log_samples"),
    )
    return folder / "out"


@pytest.fixture(scope="module")
def table(grouped):
    (path,) = glob.glob(f"{grouped}/*/results_*.json")
    return json.loads(Path(path).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def summed_up(grouped):
    return answer("summary", grouped)


def rows_of(table, name):
    """Return all rows of a task or group, of which the harness's table has some."""
    rows = table["posterior"][name]["none"]
    printed = {k.removesuffix(",none"): v for k, v in table["results"][name].items() if "," in k}
    assert {row: rows[row] for row in printed} == printed
    return rows


@pytest.mark.parametrize("task", ["demo_arithmetic_bayes", "demo_few"])
def test_every_row_is_that_of_the_harness_table(table, summed_up, task):
    expected = rows_of(table, task)
    (result,) = [item for item in summed_up["tasks"] if item["task"] == task]
    own = dict(result["rows"])
    for name, posterior in (
        ("hbayes@8", result["hbayes"]["benchmark"]),
        ("hbayes@8_population", result["hbayes"]["population"]),
        ("bayes@8", result["bayes"]),
    ):
        own |= {name: posterior["mu"], f"{name}_stderr": posterior["sigma"]}
        own |= {f"{name}_{end}": posterior["interval"][end] for end in ("low", "high")}
    own |= {"avg@8": result["avg"]["value"], "avg@8_stderr": result["avg"]["sd"]}
    for name, posterior in result["posterior_rows"].items():
        own |= {name: posterior["mu"], f"{name}_stderr": posterior["sigma"]}
        own |= {f"{name}_{end}": posterior["interval"][end] for end in ("low", "high")}
    numbers = {name: value for name, value in expected.items() if not name.endswith("_share")}
    assert own.keys() == numbers.keys()
    assert own == pytest.approx(numbers, abs=1e-9)
    # in the table's order
    assert list(result["rows"]) == [name for name in expected if name in result["rows"]]


def test_the_size_weighted_mean_is_that_of_the_harness_group(table, summed_up):
    expected = rows_of(table, "demo_both")
    (group,) = summed_up["groups"]
    assert (group["group"], group["tasks"]) == ("demo_both", ["demo_arithmetic_bayes", "demo_few"])
    size = group["means"]["size"]
    assert size["weights"] == pytest.approx([40 / 52, 12 / 52])
    learned = size["hbayes"]["benchmark"]
    assert learned["mu"] == pytest.approx(expected["hbayes@8"])
    assert learned["sigma"] == pytest.approx(expected["hbayes@8_stderr"])
    assert learned["interval"]["low"] == pytest.approx(expected["hbayes@8_low"])
    assert size["bayes"]["mu"] == pytest.approx(expected["bayes@8"])


def cells_of(printed, name):
    """Return the cells of the row of this name in a printed table."""
    (line,) = [line for line in printed.splitlines()[1:] if line.startswith(f"{name} ")]
    return line.removeprefix(name).split()


def ends(rows, name):
    return [f"{rows[f'{name}_{end}']:.3f}" for end in ("low", "high")]


def test_the_printed_table(grouped, table):
    code, printed, _ = lmeb("summary", grouped, "--task", "demo_few", "--verbose", "--estimates")
    assert code == 0
    rows = rows_of(table, "demo_few")
    learned = [f"{rows['avg@8']:.3f}", f"{rows['hbayes@8']:.3f}", *ends(rows, "hbayes@8")]
    assert cells_of(printed, "hbayes@8")[:6] == learned + ends(rows, "hbayes@8_population")
    for name in ("pass@8", "pass^2", "maj@8"):
        posterior = [f"{rows[f'h{name}']:.3f}", *ends(rows, f"h{name}")]
        assert cells_of(printed, f"h{name}")[:4] == [f"{rows[name]:.3f}", *posterior]
    paper = ["-", f"{rows['bayes@8']:.3f}", *ends(rows, "bayes@8")]
    assert cells_of(printed, "bayes@8")[:4] == paper
    _, printed, _ = lmeb("summary", grouped, "--task", "demo_few")
    assert "hmaj@8" not in printed
    answer, interval = printed.splitlines()[0], ends(rows, "hbayes@8")
    assert [f"{rows['hbayes@8']:.3f}", *interval] == re.findall(r"0\.\d{3}", answer)
    population = ("--task", "demo_few", "--scope", "population")
    answer = lmeb("summary", grouped, *population)[1].splitlines()[0]
    assert re.findall(r"0\.\d{3}", answer)[1:] == ends(rows, "hbayes@8_population")


def test_the_printed_tasks_of_a_model(grouped, table):
    rows = rows_of(table, "demo_both")
    _, printed, _ = lmeb("summary", grouped)
    size = cells_of(printed, "demo_both, size")
    assert size[:3] == [f"{rows['hbayes@8']:.3f}", *ends(rows, "hbayes@8")]
    assert cells_of(printed, "demo_few")[:3] == ["12", "x", "8"]


def test_options_reach_the_numbers(grouped):
    options = ("--task", "demo_few", "--level", ".5", "--k", "3,2")
    (first,) = answer("summary", grouped, *options)["tasks"]
    (wider,) = answer("summary", grouped, "--task", "demo_few")["tasks"]
    narrow, wide = (task["hbayes"]["benchmark"]["interval"] for task in (first, wider))
    assert wide["low"] < narrow["low"] < narrow["high"] < wide["high"]
    assert [name for name in first["rows"] if name.startswith("pass@")] == ["pass@2", "pass@3"]


def test_several_models_and_tasks(tmp_path):
    a = saved(tmp_path / "a", "model-a", outcomes(1), completion_tokens=20)
    b = saved(tmp_path / "b", HOSTILE, outcomes(2))
    c = saved(tmp_path / "c", "model-a", outcomes(3), task="other")
    code, printed, _ = lmeb("summary", a, b, c)
    assert code == 0
    assert "\x1b" not in printed
    hostile = "mod\\x1b[31m[bold]x[/bold]\\n\\u202e:smiley:"
    scores = {}
    for path, model in ((a, "model-a"), (b, hostile)):
        (task,) = answer("summary", path)["tasks"]
        scores[model] = f"{task['hbayes']['benchmark']['mu']:.3f}"
        assert scores[model] in printed.partition("\n\n")[2]
    assert printed.count("leads with") == 1  # the other task has one model
    assert "1920 tokens, 20 a trial" in lmeb("summary", a)[1]


def test_models_of_several_tasks_are_sorted_by_their_mean(tmp_path):
    names = ("one", "two")
    for seed, task in enumerate(names):
        for model, shift in (("good", 0.4), ("poor", -0.4)):
            saved(tmp_path / f"{model}{task}", model, outcomes(seed, shift), task=task)
    _, printed, _ = lmeb("summary", tmp_path)
    _, ranked, _ = lmeb("rank", tmp_path, "--json")
    places = {row["model"]: row["mu"] for row in json.loads(ranked)["overall"]["places"]}
    for model, mean in places.items():
        assert cells_of(printed, model)[0] == f"{mean:.3f}"
    assert printed.index("good ") < printed.index("poor ")


def test_models_of_other_questions_are_shown_and_not_compared(tmp_path):
    few = np.asarray(outcomes(1))[:6]
    a, b = saved(tmp_path / "a", "a", outcomes(1)), saved(tmp_path / "b", "b", few)
    code, printed, _ = lmeb("summary", a, b)
    assert code == 0
    assert "leads" not in printed
    assert [cells_of(printed, name)[0] for name in "ab"] == ["12", "6"]


def test_trials_without_a_score(tmp_path):
    """The mean of all trials lies between that with all of them wrong and with all right."""
    log = tmp_path / "m.jsonl"
    rows = [
        (q, s) for q, scores in (("p", (1, 0, None, 1)), ("q", (0, None, 0, 1))) for s in scores
    ]
    write_rows(log, [{"question": q, "trial": i, "score": s} for i, (q, s) in enumerate(rows)])
    sentence = lmeb("summary", log)[1].splitlines()[0]
    assert re.findall(r"0\.\d{3}", sentence)[3:] == ["0.375", "0.625"]


def test_one_score_of_each_question_has_no_sd_in_json(tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text("question,score\na,0.5\nb,0.2\nc,0.7\nd,1\n")
    (task,) = answer("summary", path)["tasks"]
    assert task["avg"] == {"value": pytest.approx(0.6), "sd": None}


CATEGORIES = {"q1": "algebra", "q2": "algebra", "q3": "algebra", "q4": "geometry", "q5": "geometry"}


def category_table(folder, name, categories, questions=CATEGORIES):
    """Write four trials of each of the questions, of which q1 has one right, q2 two, and so on."""
    lines = ["question,score" + (",category" if categories else "")]
    for number, question in enumerate(questions, 1):
        for trial in range(4):
            score = int(trial < number % 5)
            category = f",{categories[question]}" if categories else ""
            lines.append(f"{question.removesuffix('x')},{score}{category}")
    (folder / name).write_text("\n".join(lines) + "\n")
    return folder / name


def of_categories(file, **options):
    """Return the summary of the only run of a file as JSON."""
    (run,) = read_runs([file], **options).runs
    return summarise(run).to_dict()


def test_a_category_has_the_score_of_a_table_of_its_questions(tmp_path):
    complete = of_categories(category_table(tmp_path, "m.csv", CATEGORIES))
    plain = of_categories(category_table(tmp_path, "n.csv", None))
    assert plain["categories"] == []
    assert [score["category"] for score in complete["categories"]] == ["algebra", "geometry"]
    ignored = {"categories", "model", "notes", "sources"}
    assert {k: v for k, v in complete.items() if k not in ignored} == {
        k: v for k, v in plain.items() if k not in ignored
    }
    rows = (tmp_path / "m.csv").read_text().splitlines()
    for score, first, last in zip(complete["categories"], (1, 13), (13, 21), strict=True):
        (tmp_path / "m.csv").write_text("\n".join([rows[0], *rows[first:last]]) + "\n")
        alone = of_categories(tmp_path / "m.csv")
        assert (score["questions"], score["trials"]) == (alone["questions"], alone["trials"])
        assert score["hbayes"] == alone["hbayes"]
        assert score["bayes"] == alone["bayes"]
        assert score["avg"] == alone["avg"]["value"]


def test_scores_of_categories_are_printed(tmp_path):
    file = category_table(tmp_path, "m.csv", {**CATEGORIES, "q5": ""})
    scores = of_categories(file)["categories"]
    _, printed, _ = lmeb("summary", file, "--by", "category")
    for score in scores:
        cells = [str(score["questions"]), f"{score['hbayes']['benchmark']['mu']:.3f}"]
        assert cells_of(printed, score["category"])[:2] == cells
    assert "geometry" not in lmeb("summary", file)[1]


@pytest.mark.parametrize(
    ("categories", "questions", "note"),
    [
        ({"q1": "a", "q2": "a", "q1x": "b"}, ["q1", "q2", "q1x"], "q1 is in 'a' and 'b'"),
        ({"q1": "a", "q2": "b", "q3": "c"}, ["q1", "q2", "q3"], "each has one of its own"),
    ],
)
def test_categories_that_group_nothing_are_left_out(categories, questions, note, tmp_path):
    task = of_categories(category_table(tmp_path, "m.csv", categories, questions))
    assert task["categories"] == []
    assert any(note in line for line in task["notes"])


def test_the_categories_of_one_cluster_are_scored_as_independent(tmp_path):
    file = category_table(tmp_path, "m.csv", CATEGORIES)
    task = of_categories(file, columns={"cluster": "category", "category": "category"})
    plain = of_categories(file)
    assert task["clusters"] == 2
    for clustered, alone in zip(task["categories"], plain["categories"], strict=True):
        assert clustered["hbayes"] == alone["hbayes"]
        assert "one cluster" in clustered["notes"][0]


def test_costs_of_a_table_are_summed_as_they_are_given(tmp_path):
    rows = [("a", 1, 0.25), ("a", 0, 0.5), ("b", 1, 0.25), ("b", 1, 3)]
    lines = ["question,score,cost", *(",".join(map(str, row)) for row in rows)]
    (tmp_path / "m.csv").write_text("\n".join(lines) + "\n")
    assert of_categories(tmp_path / "m.csv")["cost"] == 4.0
    (tmp_path / "n.csv").write_text("\n".join([*lines, "b,0,"]) + "\n")
    assert of_categories(tmp_path / "n.csv")["cost"] is None
