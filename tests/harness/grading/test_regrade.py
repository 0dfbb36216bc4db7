"""A run of the harness that never heard of us: read as it is, and with its texts graded again."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("lm_eval", reason="the harness is not installed")

import numpy as np
from _support.errors import refused
from _support.harness_command import gateway, lm_eval_command
from _support.tables import write_rows
from _support.toy import SCRIPT, ScriptedLM, evaluate, toy_config
from lm_eval.api.task import ConfigurableTask
from lm_eval.loggers import EvaluationTracker

from lm_eval_bayes.harness.grading.grade import gold_answer, regraded
from lm_eval_bayes.harness.plugin import registration
from lm_eval_bayes.runs.reader import read_runs

#: A word problem with the solution of its book, as in GSM8K, and what is said in three trials.
QUESTIONS = [
    ("Six boxes of three?", "6 * 3 = <<6*3=18>>18\n#### 18", ["#### 18", "It is 18.", "#### 17"]),
    ("A thousand and 24?", "#### 1,024", [r"\boxed{1024}", "#### 1,024", "I do not know"]),
    ("Half of one?", "#### 0.5", ["#### 0.5", r"\boxed{\frac{1}{2}}", "#### 5"]),
]
#: Which texts are right, by hand; the task itself takes the first and wants its exact format.
RIGHT = [[1, 1, 0], [1, 1, 0], [1, 1, 0]]
STRICT = [1, 0, 1]

WORDS = """
task: words
dataset_path: json
dataset_kwargs: {{data_files: {data}, cache_dir: {cache}}}
test_split: train
output_type: generate_until
doc_to_text: "Q: {{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{do_sample: true, temperature: 0.7, until: ["Q:"], max_gen_toks: 32}}
repeats: 3
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
    regexes_to_ignore: [",", "(?s).*#### "]
filter_list:
  - name: strict
    filter:
      - {{function: regex, regex_pattern: "#### (\\\\-?[0-9\\\\.\\\\,]+)"}}
      - {{function: take_first}}
  - name: flexible
    filter:
      - {{function: regex, group_select: -1, regex_pattern: "([0-9][0-9,]*)"}}
      - {{function: take_first}}
metadata: {{version: 3.0}}
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The output folder of a run of a task with the harness's own class."""
    folder = tmp_path_factory.mktemp("plain")
    data = folder / "data.jsonl"
    lines = [json.dumps({"question": q, "answer": a}) for q, a, _ in QUESTIONS]
    data.write_text("\n".join(lines))
    (folder / "words.yaml").write_text(WORDS.format(data=data, cache=folder / "cache"))
    said = {f"Q: {question}": texts for question, _, texts in QUESTIONS}
    with gateway(lambda prompt, trial: said[prompt][trial]):
        model = ("--model", "gateway", "--model_args", "pretrained=org/plain,dtype=float16")
        output = ("--output_path", folder / "out", "--log_samples")
        lm_eval_command(*model, *output, "--tasks", "words", folders=[folder])
    (results,) = (folder / "out").rglob("results_*.json")
    return folder / "out", json.loads(results.read_text())["results"]


def outcomes(run):
    return [trials.tolist() for trials in run.trials]


def test_a_run_that_never_heard_of_us_is_read(saved):
    folder, results = saved
    saved_runs = read_runs([folder])
    assert saved_runs.models == ("org/plain",)
    (words,) = saved_runs.runs
    assert (words.metric, words.filter) == ("exact_match", "strict")
    assert outcomes(words) == [[right] for right in STRICT]
    assert words.outcomes.counts[:, 1].mean() == results["words"]["exact_match,strict"]
    assert "3 texts of a question one grade" in " ".join(words.notes)
    assert words.questions[0] == QUESTIONS[0][0]
    assert words.provenance.generation_kwargs["temperature"] == 0.7
    assert words.provenance.model_args == {"pretrained": "org/plain", "dtype": "float16"}
    assert words.provenance.versions["task"] == "3.0"


def test_every_text_is_a_trial_when_graded_again(saved):
    folder, _ = saved
    (words,) = read_runs([folder], regrade=regraded).runs
    assert (words.metric, outcomes(words)) == ("graded again", RIGHT)
    assert words.answers[0] == ("18", "18", "17")
    assert words.outcomes.weights.tolist() == [0, 1]


def test_our_own_trials_are_graded_again_as_the_task_graded_them(tmp_path):
    rows = []
    for number in range(3):
        texts = [rf"\boxed{{{number}}}", r"\boxed{9}", rf"I think 9</think>\boxed{{{number}}}"]
        rows.append(
            {
                "doc_id": number,
                "doc": {"problem": "?", "answer": number},
                "target": number,
                "arguments": {"gen_args_0": {"arg_0": "?", "arg_1": {"do_sample": True}}},
                "resps": [texts],
                "filter": "none",
                "outcomes": [1, 0, 0],
                "signals": {"seed": [1, 2, 3], "completion_tokens": [4, 5, 6]},
            }
        )
    file = tmp_path / "samples_mine_2026-01-01T00-00-00.0.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (run,) = read_runs([file], regrade=regraded).runs
    assert outcomes(run) == [[1, 0, 1]] * 3
    assert run.seeds == ((1, 2, 3),) * 3
    assert np.concatenate(run.measured["completion_tokens"]).tolist() == [4, 5, 6] * 3
    assert run.notes == ("3 trials got another grade than before",)


def test_results_with_their_samples_in_one_document(saved, tmp_path):
    (results,), (samples,) = (saved[0].rglob(name) for name in ("results_*.json", "samples_*"))
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    document = {**json.loads(results.read_text()), "samples": {"other": rows, "words": rows}}
    (tmp_path / "dump.json").write_text(json.dumps(document))
    for path in (tmp_path, tmp_path / "dump.json"):
        assert read_runs([path]).tasks == ("other", "words")
        (run,) = read_runs([path], task="words").runs
        (words,) = read_runs([saved[0]]).runs
        assert (outcomes(run), run.model, run.metric) == (
            outcomes(words),
            words.model,
            words.metric,
        )
        (run,) = read_runs([path], task="words", regrade=regraded).runs
        assert outcomes(run) == RIGHT
    document["config"] = {"model": "TinyLM", "model_args": None}  # of an object
    del document["model_name"]
    (tmp_path / "dump.json").write_text(json.dumps(document))
    assert read_runs([tmp_path]).models == ("TinyLM",)


def test_a_table_with_responses_and_targets_is_graded_again(tmp_path):
    rows = [
        {"question": question, "response": text, "target": answer, "correct": False}
        for question, answer, texts in QUESTIONS
        for text in texts
    ]
    table = write_rows(tmp_path / "t.jsonl", rows)
    (run,) = read_runs([table], regrade=regraded).runs
    assert (run.metric, outcomes(run)) == ("graded again", RIGHT)
    assert run.notes[-1] == "6 trials got another grade than before"
    rows[0]["response"] = None
    (run,) = read_runs([write_rows(table, rows)], regrade=regraded).runs
    assert outcomes(run) == [RIGHT[0][1:], *RIGHT[1:]]
    assert run.notes[-1] == "1 trial without a score left out"
    for name in ("response", "target"):
        without = [{k: v for k, v in row.items() if k != name} for row in rows]
        with refused("regrade", "conflict"):
            read_runs([write_rows(table, without)], regrade=regraded)


@pytest.mark.filterwarnings("default")
def test_the_metric_bayes_in_a_task_of_another_class_gives_trials(tmp_path):
    registration.register_all()
    metric = {"metric": "bayes", "aggregation": "bayes", "higher_is_better": True}
    config = toy_config(
        metric_list=[{**metric, "weights": [-1, 2], "interval": "normal"}],
        filter_list=[{"name": "none", "filter": [{"function": "keep_all"}]}],
    )
    results = evaluate(ScriptedLM(SCRIPT), ConfigurableTask(config=config))
    tracker, samples = EvaluationTracker(output_path=str(tmp_path)), results.pop("samples")
    tracker.save_results_aggregated(results=results, samples=samples)
    tracker.save_results_samples("toy", samples["toy"])
    (run,) = read_runs([tmp_path]).runs
    # what the script says: right 3, 1 and 0 of 4 times
    assert run.outcomes.counts.tolist() == [[1, 3], [3, 1], [4, 0]]
    assert run.outcomes.weights.tolist() == [-1, 2]
    assert outcomes(run) == [[1, 1, 0, 1], [0, 1, 0, 0], [0, 0, 0, 0]]
    (again,) = read_runs([tmp_path], regrade=regraded).runs
    assert outcomes(again) == [[1, 1, 0, 1], [0, 1, 0, 0], [0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("target", "answer"),
    [
        ("a\n#### 1,024 ", "1,024"),
        (r"so $\boxed{x+1}$, as \boxed{} says", "x+1"),
        (r"so $\boxed{2}$ and $\boxed{-2}$", "2, -2"),
    ],
)
def test_the_answer_in_a_target(target, answer):
    assert gold_answer(target) == answer


@pytest.mark.parametrize("target", ["  ", "we give up\n####"])
def test_a_target_without_an_answer(target):
    with refused("target", "missing"):
        gold_answer(target)
