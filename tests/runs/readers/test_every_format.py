"""Every format in every command: the numbers of the same outcomes given as a table or a matrix.

A second model, a table of other outcomes of the same questions, makes pairs and boards of a log of
one model.
"""

from __future__ import annotations

import json
from numbers import Real

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from _support.command_line import called
from _support.tool_logs import DATA, flat

from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.readers.formats import FORMATS, recognise
from lm_eval_bayes.runs.task_run import GRADED
from lm_eval_bayes.store.outcomes import GradedQuestion, GradedTask, GradedTrial
from lm_eval_bayes.store.trial import Trial, TrialKey
from lm_eval_bayes.store.trial_store import TrialStore


def store(folder):
    file = folder / "trials.sqlite"
    with TrialStore.open(file) as trials:
        model = trials.describe_model({"pretrained": "some/model"})
        sampling = trials.describe_sampling({"temperature": 0.6})
        questions = []
        for q in range(6):
            key = TrialKey(model, trials.describe_prompts([f"{q} + 1 ="])[0], sampling)
            trials.add([Trial(key, i, f"text {i}", seed=i) for i in range(5)])
            graded = tuple(GradedTrial(key, i, (q + i) % 3 % 2, str(i)) for i in range(5))
            questions.append(GradedQuestion(q, f"{q:02}", graded))
        trials.add_outcomes([GradedTask("t", "1.0", "none", 2, tuple(questions))])
    return file


def counts(folder):
    file = folder / "counts.csv"
    rows = [f"q{i},a,{i % 5},4" for i in range(12)]
    file.write_text("\n".join(["id,model,c,n", *rows]) + "\n", encoding="utf-8")
    return file


def matrix(folder):
    file = folder / "matrix.csv"
    R = np.random.default_rng(1).integers(0, 2, (9, 4)).tolist()
    rows = [f"q{i},{','.join(map(str, row))}" for i, row in enumerate(R)]
    file.write_text("\n".join(["id,trial_1,trial_2,trial_3,trial_4", *rows]), encoding="utf-8")
    return file


def promptfoo(folder):
    """Write the rows of one of the providers."""
    content = json.loads((DATA / "promptfoo" / "sums.json").read_text(encoding="utf-8"))
    rows = content["results"]["results"]
    content["results"]["results"] = [row for row in rows if row["provider"]["label"] == "weak"]
    file = folder / "sums.json"
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


#: By format a log of one model on one task, and the options that choose the two.
LOGS = {
    "lm-evaluation-harness": ("lm_eval_0.4.9",),
    "inspect_ai": ("inspect_ai/weak.eval",),
    "verifiers": ("verifiers/sums--org--weak",),
    "verifiers, traces": ("verifiers_traces/weak",),
    "Every Eval Ever": ("every_eval_ever",),
    "SWE-bench": ("swe_bench/org__weak-1.5.run_1.json", "--task", "verified"),
    "promptfoo": (promptfoo,),
    "tau2-bench, tau-bench": ("tau2/weak.json",),
    "Harbor, terminal-bench": ("terminal_bench/ob1_1",),
    "evalscope": ("evalscope/weak", "--task", "general_mcq_letters"),
    "lighteval": ("lighteval/details/weak", "--task", "sums|0"),
    "NeMo-Skills": ("nemo_skills/published/eval-results/gpqa",),
    "MathArena": ("matharena/outputs/aime/aime_2025/open/weak",),
    "counts": (counts,),
    "table of trials": ("matharena/published.parquet",),
    "matrix of outcomes": (matrix,),
    "trial store": (store,),
}
#: What depends on more than the outcomes: files, tokens, rows of further k, votes.
OTHER = (
    "source",
    "token",
    "second",
    "rows",
    "warning",
    "note",
    "cost",
    "provenance",
    "file",
    "date",
)


def scores_of(run):
    """Return the scores of the trials of every question, of counts in any order."""
    if run.scored:
        return [row.tolist() for row in run.outcomes.scores]
    if run.trials is not None:
        return [run.outcomes.weights[row].tolist() for row in run.trials]
    return [[0.0] * wrong + [1.0] * right for wrong, right in run.outcomes.counts.tolist()]


def write_table(path, model, task, ids, scores, metric="score"):
    rows = [
        {"model": model, "task": task, "question": id, "trial": trial, metric: score}
        for id, of_question in zip(ids, scores, strict=True)
        for trial, score in enumerate(of_question)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_matrix(path, model, task, ids, scores):
    """Write 0/1 outcomes with one number of trials as an array, with the names."""
    np.savez(
        path, R=np.array([scores], dtype=np.int64), models=[model], question_ids=ids, task=task
    )


def numbers(command, *arguments):
    code, printed, error = called(command, *arguments, "--json")
    assert code == 0, error
    leaves = flat(json.loads(printed)).items()
    return {
        path: value
        for path, value in leaves
        if isinstance(value, Real) and not any(word in path for word in OTHER)
    }


def test_every_format_is_here():
    assert set(LOGS) == {format.name for format in FORMATS}


@pytest.mark.slow
@pytest.mark.parametrize("name", LOGS)
def test_every_command_has_the_numbers_of_the_same_outcomes(name, tmp_path):
    log, *options = LOGS[name]
    path = DATA / log if isinstance(log, str) else log(tmp_path)
    assert recognise(path)[0].name == name
    task = options[1] if options else None
    run = read_runs([path], task=task).runs[0]
    ids, scores = run.question_ids, scores_of(run)
    if name == "table of trials":  # the rows of one of its models
        path, log = tmp_path / "one.parquet", path
        rows = pyarrow.parquet.read_table(log).to_pylist()
        rows = [row for row in rows if row["model_name"] == run.model]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    metric = "score" if run.metric == GRADED else run.metric
    choice = [] if metric == "score" else ["--columns", f"score={metric}"]
    same, other, plain = (tmp_path / f"{name}.jsonl" for name in ("same", "other", "plain"))
    binary = {score for row in scores for score in row} <= {0, 1}
    rectangular = binary and len({len(row) for row in scores}) == 1
    if rectangular:
        same = same.with_suffix(".npz")
    (write_matrix if rectangular else write_table)(same, run.model, run.task, ids, scores)
    reverse = [[1.0 - score for score in row] for row in scores[::-1]]
    write_table(other, "other", run.task, ids, reverse, metric)
    write_table(plain, "other", run.task, ids, reverse)
    options = ["--task", run.task] if options else []
    logged, given = [path, other, *choice, *options], [same, plain, *options]
    for command in ("summary", "compare", "rank", "noise"):
        if command == "summary":
            read = numbers(command, path, *options)
            expected = numbers(command, same, *options)
        else:
            read, expected = numbers(command, *logged), numbers(command, *given)
        common = read.keys() & expected.keys()
        assert len(common) > 10
        assert {k: read[k] for k in common} == pytest.approx(
            {k: expected[k] for k in common}, rel=1e-9, abs=1e-12, nan_ok=True
        )
    pages = tmp_path / "page.html", tmp_path / "same.html"
    for page, arguments in zip(pages, (logged, given), strict=True):
        code, _, error = called("report", *arguments, "-o", page)
        assert code == 0, error
    boards = [board_of(target.read_text(encoding="utf-8")) for target in pages]
    assert boards[0] == boards[1]
    assert len(boards[0]) == 2


def board_of(page):
    """Return the numbers of the rows of the first board of a page: rank, score, ends, N."""
    table = page[page.index("<tbody") : page.index("</tbody>")]
    rows = table.split("<tr")[1:]
    return [[part.split('"')[0] for part in row.split('data-v="')[1:7]] for row in rows]
