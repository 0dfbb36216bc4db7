"""A run of a task as users bring it: its folder and its trial store are the same run."""

from __future__ import annotations

import json
import sqlite3

import pytest
from _support.errors import refused
from _support.harness_command import lm_eval_command
from _support.run_files import row, write_run

from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.readers.protocol import NothingToCountError
from lm_eval_bayes.store.outcomes import GradedQuestion, GradedTask, GradedTrial
from lm_eval_bayes.store.prune import verify
from lm_eval_bayes.store.trial import Trial, TrialKey
from lm_eval_bayes.store.trial_store import TrialStore

N, QUESTIONS = 4, 6

#: No max_gen_toks, stop strings in an order of their own, and a filter that sorts last comes first.
YAML = """
task: sums
dataset_path: json
dataset_kwargs: {{data_files: {data}}}
test_split: train
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["Q:", "</s>", "A:"], do_sample: true, temperature: 0.6}}
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
filter_list:
  - name: strict
    filter: [{{function: regex, regex_pattern: 'NOTHING ([0-9]+)'}}, {{function: take_first}}]
  - name: flexible
    filter: [{{function: regex, regex_pattern: '([0-9]+)'}}, {{function: take_first}}]
metadata: {{version: 1.0}}
"""


@pytest.fixture(scope="module")
def sampled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sums")
    rows = [{"question": f"{i} + {i}?", "answer": str(2 * i)} for i in range(10, 10 + QUESTIONS)]
    data = folder / "sums.jsonl"
    data.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (folder / "sums.yaml").write_text(YAML.format(data=data), encoding="utf-8")
    run(folder)
    return folder


def run(folder, output="out"):
    lm_eval_command(
        *("--model", "trials", "--tasks", "sums_bayes", "--include_path", folder),
        *("--model_args", f"backend=biased_coin,beta=2:3,store={folder}/sums.sqlite"),
        *("--metadata", json.dumps({"bayes_n": N}), "--output_path", folder / output),
        "--log_samples",
        folders=[folder],
    )


@pytest.mark.parametrize("filter", [None, "strict", "flexible"])
def test_they_have_the_same_scores(sampled, filter):
    (folder,), (store,) = (
        read_runs([sampled / name], filter=filter).runs for name in ("out", "sums.sqlite")
    )
    for task in (folder, store):
        assert (task.filter, task.n_trials) == (filter or "strict", N * QUESTIONS)
    right = folder.outcomes.counts[:, 1]
    assert right.tolist() == store.outcomes.counts[:, 1].tolist()
    assert (right.sum() > 0) == (filter == "flexible")


def test_together_they_are_refused_or_one(sampled):
    runs = (sampled / "out", sampled / "sums.sqlite")
    with refused("RUN", "duplicate"):
        read_runs(runs)
    (task,) = read_runs(runs, dedupe=True).runs
    assert (task.n_trials, task.model) == (N * QUESTIONS, "biased_coin beta=2:3")
    assert task.settings == ()


def test_a_filter_that_a_task_lacks_leaves_it_out(sampled, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    for file in (sampled / "out").rglob("*_*.json*"):
        text = file.read_text(encoding="utf-8").replace('"flexible"', '"loose"')
        (other / file.name.replace("sums", "other")).write_text(
            text.replace("sums_bayes", "other_bayes"), encoding="utf-8"
        )
    both = (sampled / "out", other)
    saved = read_runs(both, filter="loose")
    assert saved.tasks == ("other_bayes",)
    assert any("'loose'" in warning for warning in saved.warnings)
    with refused("filter", "choice", "nowhere", error=NothingToCountError):
        read_runs(both, filter="nowhere")


def test_a_text_that_was_changed_is_named_and_sampled_again(sampled, tmp_path, caplog):
    store = tmp_path / "sums.sqlite"
    for name in ("sums.yaml", "sums.jsonl"):
        (tmp_path / name).write_bytes((sampled / name).read_bytes())
    with sqlite3.connect(sampled / "sums.sqlite") as source, sqlite3.connect(store) as target:
        source.backup(target)
    with sqlite3.connect(store) as connection:
        connection.execute("UPDATE trials SET text = CAST('42' AS BLOB) WHERE trial = 2")
    saved = read_runs([store])
    assert saved.runs[0].n_trials == N * QUESTIONS
    assert any("6 texts of task sums_bayes" in text for text in saved.warnings)
    run(tmp_path, output="again")
    assert "6 stored trials" in caplog.text
    assert verify(store).ok
    with sqlite3.connect(sampled / "sums.sqlite") as before, sqlite3.connect(store) as after:
        texts = "SELECT text, seed FROM trials ORDER BY prompt, trial"
        assert after.execute(texts).fetchall() == before.execute(texts).fetchall()


def test_trials_without_a_grade_are_counted(tmp_path):
    """A run that was stopped has stored them and not graded them."""
    path = tmp_path / "s.sqlite"
    with TrialStore.open(path) as store:
        key = TrialKey(
            model=store.describe_model({"pretrained": "m"}),
            prompt=store.describe_prompts(["How many?"])[0],
            sampling=store.describe_sampling({"temperature": 1}),
        )
        store.add([Trial(key, i, str(i)) for i in range(5)])
        graded = tuple(GradedTrial(key, i, i % 2) for i in range(3))
        question = GradedQuestion(0, "aa", graded)
        store.add_outcomes([GradedTask("sums", "1.0", "none", 2, (question,))])
        assert store.info().ungraded == 2
    saved = read_runs([path])
    assert saved.runs[0].n_trials == 3
    assert any("2 trials without a grade" in warning for warning in saved.warnings)


def test_a_line_has_one_label_or_one_for_every_trial(tmp_path):
    rows = [
        row(0, outcomes=[1, 0], texts=["a", "b"], setting=["day1", "day2"]),
        row(1, outcomes=[0, 1], texts=["c", "d"], setting="day2"),
        row(2, outcomes=[1, 1], texts=["e", "f"]),
    ]
    (run,) = read_runs([write_run(tmp_path / "run", rows)]).runs
    labels = [[run.settings[code] for code in codes] for codes in run.setting]
    assert labels[:2] == [["day1", "day2"], ["day2", "day2"]]
    assert len({*labels[2]}) == 1
    assert {*labels[2]}.isdisjoint({"day1", "day2"})
    regraded = write_run(tmp_path / "one", [row(0, texts=["a", "b"], setting="day1", acc=1.0)])
    assert read_runs([regraded], metric="acc").runs[0].n_trials == 1
