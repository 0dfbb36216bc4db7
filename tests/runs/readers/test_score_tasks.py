"""Logs of the harness's SCORE tasks, which `data/make_score.py` wrote.

The expected means are those that the harness printed, of the settings that it asked.
"""

import shutil

import numpy as np
import pytest
from _support.errors import ANY, refused
from _support.tool_logs import DATA, content_of, means_by_setting, rows_of, write_lines

from lm_eval_bayes.runs.reader import read_runs

SCORE, SEEDS = DATA / "score", DATA / "score_seeds"


def printed(folder, task):
    (file,) = folder.rglob("results_*.json")
    return content_of(file)["results"][task]


def file_of(folder, task):
    (file,) = folder.rglob(f"samples_{task}_*.jsonl")
    return file


@pytest.mark.parametrize("task", ["prompts_agieval", "prompts_math"])
def test_the_mean_of_a_prompt_is_that_of_the_harness(task):
    (run,) = read_runs(SCORE, task=task).runs
    assert (run.model, run.metric) == ("org/name", "accuracy")
    assert run.outcomes.n_trials.tolist() == [10, 10, 10]
    assert run.settings == tuple(f"prompt {i}" for i in range(10))
    results = printed(SCORE, task)
    for i, mean in enumerate(means_by_setting(run).values()):
        assert round(mean, 4) == results[f"{i}_accuracy,none"]


def test_an_option_that_a_question_has_not_is_no_setting_of_it():
    """The harness asks the question of three options in its own order again."""
    (run,) = read_runs(SCORE, task="options_mmlu_pro").runs
    assert run.outcomes.n_trials.tolist() == [3, 10, 10]
    assert any("7 trials" in note for note in run.notes)
    results, means = printed(SCORE, run.task), means_by_setting(run)
    rows = rows_of(file_of(SCORE, run.task))
    for at, letter in enumerate("ABCDEFGHIJ"):
        name = f"per_option_macro_accuracy_{letter}"
        asked = [row[name] for row in rows[at::10] if at < len(row["doc"]["options"])]
        by_hand = sum(value[2] == value[3] for value in asked) / len(asked)
        assert means[f"answer at {letter}"] == by_hand
        assert len(asked) == 2 or round(by_hand, 4) == results[f"{name},none"]


def test_the_text_of_a_trial_is_that_of_its_prompt():
    def grade(texts, target, marker):
        return [("is A" in text, text) for text in texts]

    (run,) = read_runs(SCORE, task="prompts_agieval", regrade=grade).runs
    rows = rows_of(file_of(SCORE, "prompts_agieval"))
    texts = [[row["resps"][0][0] for row in rows[at : at + 10]] for at in (0, 10, 20)]
    assert [[trial.text for trial in of.read()] for of in run.texts] == texts
    assert [t.tolist() for t in run.trials] == [["is A" in text for text in of] for of in texts]
    assert [s.tolist() for s in run.setting] == [list(range(10))] * 3


def test_a_seed_is_a_trial_of_its_own_run():
    saved = read_runs(SEEDS)
    (run,) = saved.runs
    assert run.outcomes.n_trials.tolist() == [2, 2, 2]
    for seed, mean in means_by_setting(run).items():
        assert round(mean, 4) == printed(SEEDS / seed, run.task)["non_greedy_accuracy,none"]
    # in MATH the log does not say which answers are right
    assert sum("seeds_math" in warning for warning in saved.warnings) == 2
    with refused("RUN", "missing", "non_greedy_accuracy"):
        read_runs(SEEDS, task="seeds_math")


def test_documents_in_any_order_and_twice(tmp_path):
    """Several processes write the documents of a question apart."""
    folder = shutil.copytree(SCORE, tmp_path / "score")
    file = file_of(folder, "prompts_agieval")
    (run,), rows = read_runs([file]).runs, rows_of(file)
    write_lines(file, [*rows[::2], *rows[1::2], *rows[:4]])
    with refused("RUN", "duplicate", ANY):
        read_runs([file])
    (other,) = read_runs([file], dedupe=True).runs
    assert other.question_ids == run.question_ids
    for column in ("trials", "setting"):
        assert np.array_equal(getattr(other, column), getattr(run, column))
    write_lines(file, rows[:25])
    saved = read_runs([file])
    assert saved.runs[0].outcomes.n_trials.tolist() == [10, 10, 5]
    assert any("25 of 30 documents" in warning for warning in saved.warnings)
    write_lines(file, [*rows, {**rows[3], "doc_id": 30}])
    with refused("RUN", "duplicate", "prompt 3 in 30"):
        read_runs([file])
    write_lines(file, [*rows[:7], {**rows[7], "7_accuracy": [0, 7, "A"]}])
    with refused("RUN", "damaged", "question 7: 7_accuracy = [0, 7, 'A']"):
        read_runs([file])
