"""Outputs of NeMo-Skills that its own tests read; `data/nemo_skills/make.py` cut them.

The expected means and pass@k are those in the metrics that NeMo-Skills keeps with them. Those of
`robust`, which `data/nemo_skills/make_robust.py` wrote, are of its summarize_robustness.
"""

import json
import shutil

import pytest
from _support.errors import refused
from _support.tool_logs import DATA, content_of, means_by_setting, rows_of, summary, write_lines

from lm_eval_bayes.runs.reader import read_runs

PUBLISHED = DATA / "nemo_skills" / "published"
ROBUST = DATA / "nemo_skills" / "robust" / "qwen"
RESULTS = PUBLISHED / "eval-results"
METRICS = json.loads((DATA / "nemo_skills" / "metrics.json").read_text(encoding="utf-8"))


@pytest.fixture
def outputs(tmp_path):
    """The outputs of two seeds of a model, in folders that may be changed."""
    folder = tmp_path / "qwen" / "eval-results" / "sums"
    folder.mkdir(parents=True)
    for seed in (3, 10):
        rows = [
            {
                "problem": f"{n}+{n}?",
                "expected_answer": str(2 * n),
                "predicted_answer": str(2 * n if n < 2 else seed),
                "symbolic_correct": n < 2,
                "judgement": "Reasoning: ...\nJudgement: " + ("Yes", "no.", "yes")[n],
                "subject": "ab"[n % 2],
                "num_generated_tokens": 10 + n,
            }
            for n in range(3)
        ]
        write_lines(folder / f"output-rs{seed}.jsonl", rows)
    return folder


@pytest.mark.parametrize(
    ("name", "metric", "n"),
    [
        ("answer-judge", "correct_judgements", 4),
        ("gpqa", "symbolic_correct", 4),
        ("hendrycks_math", "symbolic_correct", 3),
        ("human-eval", "passing_base_tests", 2),
        ("human-eval", "passing_plus_tests", 2),
        ("minif2f", "lean4_correct", 4),
    ],
)
def test_the_mean_and_pass_at_k_are_those_of_nemo_skills(name, metric, n):
    expected = METRICS[name]
    expected = expected.get("_all_", expected)
    tasks, _ = summary(RESULTS / name, "--metric", metric, "--k", str(n))
    task = tasks["published", name]
    assert 100 * task["avg"]["value"] == pytest.approx(expected[f"pass@1[avg-of-{n}]"][metric])
    assert 100 * task["rows"][f"pass@{n}"] == pytest.approx(expected[f"pass@{n}"][metric])


def test_seeds_are_trials_in_their_order(outputs):
    rows = rows_of(outputs / "output-rs3.jsonl")
    rows[2]["symbolic_correct"] = True
    write_lines(outputs / "output-rs3.jsonl", rows)
    (run,) = read_runs([outputs]).runs
    assert (run.model, run.task) == ("qwen", "sums")
    assert [row.tolist() for row in run.trials] == [[1, 1], [1, 1], [1, 0]]
    assert run.answers == (("0", "0"), ("2", "2"), ("3", "10"))
    assert run.questions == ("0+0?", "1+1?", "2+2?")
    assert run.tokens == 66


def test_the_judge_and_the_symbols_are_metrics(outputs):
    for metric, right in (
        ("symbolic_correct", [1, 1, 0]),
        ("judge_correct", [1, 0, 1]),
        ("both_correct", [1, 0, 0]),
        ("any_correct", [1, 1, 1]),
    ):
        (run,) = read_runs([outputs], metric=metric).runs
        assert [row.tolist() for row in run.trials] == [[r, r] for r in right]


def test_an_unclear_judgement_is_wrong(outputs):
    file = outputs / "output-rs3.jsonl"
    rows = [row | {"judgement": "I cannot tell."} for row in rows_of(file)]
    (run,) = read_runs([write_lines(file, rows)], metric="judge_correct").runs
    assert run.outcomes.counts.tolist() == [[1, 0]] * 3


def test_a_question_keeps_its_id_in_another_order(outputs):
    file = outputs / "output-rs10.jsonl"
    write_lines(file, rows_of(file)[::-1])
    (run,) = read_runs([outputs]).runs
    assert [row.tolist() for row in run.trials] == [[1, 1], [1, 1], [0, 0]]
    for path in outputs.iterdir():
        write_lines(path, [row | {"id": f"q{row['problem'][0]}"} for row in rows_of(path)])
    assert read_runs([outputs]).runs[0].question_ids == ("q0", "q1", "q2")


def test_a_named_task_makes_a_folder_without_a_task_a_model(tmp_path, outputs):
    for model in ("qwen", "llama"):
        shutil.copytree(outputs, tmp_path / "runs" / model)
    models = {run.model for run in read_runs([tmp_path / "runs"], task="aime").runs}
    assert models == {"qwen", "llama"}


@pytest.mark.parametrize("name", ["answer-judge", "gpqa"])
def test_lines_are_no_questions_where_files_have_other_numbers_of_them(tmp_path, name):
    """Without its first line the other answers of a seed are those to the questions before."""
    other = shutil.copytree(RESULTS / name, tmp_path / "llama" / name)
    folder = shutil.copytree(RESULTS / name, tmp_path / "qwen" / name)
    first, file = folder / "output-rs0.jsonl", folder / "output-rs1.jsonl"
    rows = rows_of(file)
    write_lines(file, rows[1:])
    for paths, merge in (([folder], True), ([first, file], True), ([other, file], False)):
        with refused("RUN", "mismatch", f"{len(rows) - 1} in place of {len(rows)} questions"):
            read_runs(paths, merge=merge)
    # a line is found by its id
    for path, skipped in ((first, 0), (file, 1)):
        numbered = [row | {"id": n} for n, row in enumerate(rows_of(path), skipped)]
        write_lines(path, numbered)
    (run,) = read_runs([first, file]).runs
    assert run.outcomes.n_trials.tolist() == [1] + [2] * (len(rows) - 1)


def test_greedy_outputs_beside_seeds_are_left_out(outputs):
    shutil.copy(outputs / "output-rs3.jsonl", outputs / "output.jsonl")
    saved = read_runs([outputs])
    assert saved.runs[0].n_trials == 6
    assert "output.jsonl" in saved.warnings[0]
    assert read_runs([outputs / "output.jsonl"]).runs[0].n_trials == 3


@pytest.mark.parametrize("named", [{"id": "q"}, {}])
def test_a_line_of_nemo_skills_that_was_generated_again(tmp_path, named):
    """A question of one seed that is there again, with another text, is the same trial."""
    rows = [
        {"problem": f"{n}+{n}?", "generation": str(n), "symbolic_correct": n < 2}
        | {key: f"{value}{n}" for key, value in named.items()}
        for n in range(3)
    ]
    path = write_lines(tmp_path / "output-rs0.jsonl", [*rows, rows[2]])
    with refused("RUN", "duplicate"):
        read_runs([path])
    assert read_runs([path], dedupe=True).runs[0].question_ids == (
        read_runs([write_lines(tmp_path / "output-rs0.jsonl", rows)]).runs[0].question_ids
    )
    write_lines(tmp_path / "output-rs0.jsonl", [*rows, rows[2] | {"generation": "4"}])
    if named:
        with refused("RUN", "duplicate"):
            read_runs([path])
    else:  # two questions of one text, as some benchmarks have them
        assert read_runs([path]).runs[0].n_questions == 4


def test_a_prompt_of_robust_eval_is_a_setting(tmp_path):
    (run,) = read_runs([ROBUST]).runs
    assert (run.model, run.task, run.n_trials) == ("qwen", "gpqa", 16)
    assert run.settings == ("boxed_2", "boxed_10")
    expected = content_of(ROBUST / "metrics.json")["gpqa"]
    for prompt, mean in means_by_setting(run).items():
        assert 100 * mean == expected[prompt]["avg"]
    # the folders that its documentation shows
    for prompt in ("boxed_2", "boxed_10"):
        folder = ROBUST / "gpqa" / prompt / "eval-results" / "gpqa"
        shutil.copytree(folder, tmp_path / "qwen" / "gpqa" / prompt)
    # without the one that it writes they may be those of models
    assert read_runs([tmp_path]).tasks == ("boxed_10", "boxed_2")
    shutil.copytree(ROBUST / "summarize_robustness", tmp_path / "qwen" / "summarize_robustness")
    (other,) = read_runs([tmp_path]).runs
    assert (other.model, other.task) == ("qwen", "gpqa")
    assert means_by_setting(other) == means_by_setting(run)
    # outputs of `ns eval` in the same folder
    shutil.copytree(folder, tmp_path / "qwen" / "eval-results" / "gpqa")
    (plain,) = read_runs([tmp_path / "qwen" / "eval-results"]).runs
    assert (plain.model, plain.task, plain.settings) == ("qwen", "gpqa", ())
