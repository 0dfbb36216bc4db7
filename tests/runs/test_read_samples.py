"""What is read of the harness's samples, ours and everybody's, and what is refused."""

import json
import math

import numpy as np
import pytest
from _support.errors import refused
from _support.run_files import LATER, SENT, STAMP, TASK, row, sha, write_run

from lm_eval_bayes.runs.reader import read_runs


def read_one(path, **options):
    (run,) = read_runs([path], **options).runs
    return run


def test_graded_trials_with_all_that_was_logged_of_them(tmp_path):
    rows = [
        row(
            1,
            outcomes=[0, 2, None, 1],
            answers=["a", None, "c", "d"],
            seed=[11, 12, 13, None],
            completion_tokens=[3, 4, 5, 6],
            generated_s=[0.5, None, 1.0, 2.0],
            concurrency=[1, 2, 2, 4],
        ),
        row(0, outcomes=[2, 2], answers=["x", "y"]),
    ]
    bayes = {"weights": [0, 0.25, 1], "n": 4}
    config = {"task": TASK, "metadata": {"bayes": bayes}, "dataset_path": "org/data"}
    config |= {"dataset_name": "main", "dataset_kwargs": {"revision": "c0ffee"}}
    samples = write_run(tmp_path, rows, configs={TASK: config}, args={"api_key": "secret"})
    run = read_one(tmp_path)
    assert (run.model, run.task, run.sources) == ("org/model", TASK, (str(samples),))
    assert [trials.tolist() for trials in run.trials] == [[2, 2], [0, 2, 1]]
    assert run.outcomes.counts.tolist() == [[0, 0, 2], [1, 1, 1]]
    assert run.outcomes.weights.tolist() == [0, 0.25, 1]
    assert run.question_ids == (rows[1]["doc_hash"], rows[0]["doc_hash"])
    assert run.questions == ("0 + 0?", "1 + 1?")
    assert run.prompt_hashes == (sha("Q: 0 + 0?"), sha("Q: 1 + 1?"))
    assert run.answers == (("x", "y"), ("a", None, "d"))
    assert run.seeds == ((None, None), (11, 12, None))
    assert sorted(run.measured) == ["completion_tokens", "concurrency", "generated_s"]
    assert np.isnan(run.measured["completion_tokens"][0]).all()
    assert run.measured["completion_tokens"][1].tolist() == [3, 4, 6]
    assert math.isnan(run.measured["generated_s"][1][1])
    assert run.tokens is None
    assert (run.metric, run.filter, run.n_common) == ("graded trials", "none", 2)
    made = run.provenance
    assert (made.backend, made.dataset, made.revision) == ("vllm", "org/data/main", "c0ffee")
    assert made.model_args == {"pretrained": "org/model", "api_key": "(not shown)"}
    assert made.generation_kwargs == SENT
    assert (made.seconds, made.date) == (2.5, 1769853600.25)
    assert made.versions == {"lm_eval": "0.4.13", "task": "1.0"}


def test_a_binary_metric_is_one_trial_a_question(tmp_path):
    rows = [
        row(0, "strict", f1=0.5, exact_match=1.0, bleu=1, texts=["It is 0."]),
        row(1, "strict", f1=1.0, exact_match=0.0, bleu=0),
        row(0, "flexible", f1=0.5, exact_match=1.0, bleu=1),
        row(1, "flexible", f1=1.0, exact_match=1.0, bleu=0),
    ]
    listed = [{"metric": "f1"}, {"metric": "exact_match"}, {"metric": "bleu"}]
    write_run(tmp_path, rows, configs={TASK: {"task": TASK, "metric_list": listed}})
    run = read_one(tmp_path)
    assert (run.metric, run.filter) == ("exact_match", "strict")
    assert [trials.tolist() for trials in run.trials] == [[1], [0]]
    assert run.answers == (("It is 0.",), ("?",))
    of_metric, of_filter = run.notes
    assert "exact_match or bleu" in of_metric
    assert "strict or flexible" in of_filter
    other = read_one(tmp_path, filter="flexible", metric="bleu")
    assert (other.metric, other.filter, other.notes) == ("bleu", "flexible", ())
    assert other.outcomes.counts.tolist() == [[0, 1], [1, 0]]
    with refused("metric", "choice", "f1"):
        read_runs([tmp_path], metric="f1")
    with refused("filter", "choice", "loose"):
        read_runs([tmp_path], filter="loose")


def test_a_metric_that_is_better_lower_is_not_taken_unasked(tmp_path):
    better = {TASK: {"wrong": False, "right": True}}
    write_run(tmp_path, [row(0, wrong=1, right=0)], higher_is_better=better)
    assert read_one(tmp_path).metric == "right"
    assert read_one(tmp_path, metric="wrong").metric == "wrong"


def test_likelihoods_and_an_ungraded_question(tmp_path):
    rows = [row(0, acc=1.0), row(1, acc=None), row(2, acc=0.0)]
    for line in rows:
        line["arguments"] = {f"gen_args_{i}": {"arg_0": "Q", "arg_1": f" {i}"} for i in range(2)}
        line["resps"] = [[["-1.5", "False"]], [["-2.5", "False"]]]
    write_run(tmp_path, rows)
    saved = read_runs([tmp_path])
    assert [trials.tolist() for trials in saved.runs[0].trials] == [[1], [], [0]]
    (warning,) = saved.warnings
    assert "1 of 3 questions" in warning


def test_averages_of_the_metric_bayes_are_counts(tmp_path):
    averages = [1 / 3, 2 / 3, 1.0]
    rows = [row(n, **{"bayes@3": 0.5, "avg@3": a, "pass@3": 1.0}) for n, a in enumerate(averages)]
    samples = write_run(tmp_path, rows)
    run = read_one(tmp_path)
    assert run.outcomes.counts.tolist() == [[2, 1], [1, 2], [0, 3]]
    assert (run.metric, run.trials) == ("graded trials", None)
    again = write_run(tmp_path, rows[:1], stamp=LATER)
    saved = read_runs([tmp_path])
    assert saved.runs[0].n_trials == 9
    assert samples.name in saved.warnings[0]
    write_run(tmp_path, [rows[0] | {"avg@3": 2 / 3}], stamp=LATER)
    with refused("RUN", "mismatch"):
        read_runs([tmp_path])
    again.unlink()
    write_run(tmp_path, rows + rows[:1])
    with refused(
        "RUN", "duplicate", "question 0 2 times (--dedupe counts each of its trials once)"
    ):
        read_runs([tmp_path])
    assert read_runs([tmp_path], dedupe=True).runs[0].n_trials == 9
    write_run(tmp_path, [row(0, **{"bayes@3": 0.5, "avg@3": 0.5})])
    with refused("RUN", "mismatch", "question 0: avg@3 = 0.5 is no average of 3 trials"):
        read_runs([tmp_path])


def test_samples_of_an_old_harness(tmp_path):
    """Before 0.4.3 there were no hashes, no list of metrics, and other arguments."""
    old = {
        "doc_id": 0,
        "doc": {"question": "1 + 1?", "answer": "é"},
        "target": "2",
        "arguments": [["Q: 1 + 1?", {"until": ["\n"]}]],
        "resps": [["2"]],
        "filtered_resps": ["2"],
        "exact_match": 1.0,
    }
    write_run(tmp_path, [old])
    run = read_one(tmp_path)
    # the harness's own way to hash a document
    digest = sha(json.dumps(old["doc"], indent=2, ensure_ascii=False))
    assert run.question_ids == (digest,)
    assert run.prompt_hashes == (sha("Q: 1 + 1?"),)
    assert (run.questions, run.metric, run.filter) == (("1 + 1?",), "exact_match", "")


def test_a_samples_file_by_itself(tmp_path):
    samples = write_run(tmp_path / "org__model", [row(0, outcomes=[1, 0])])
    samples.with_name(f"results_{STAMP}.json").unlink()
    run = read_one(samples)
    assert (run.model, run.task, run.n_trials) == ("org__model", TASK, 2)
    renamed = samples.rename(tmp_path / "mine.jsonl")
    assert read_one(renamed).n_trials == 2


ROW = row(0, outcomes=[1, 0])


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("", "empty"),
        ("{broken}\n" + json.dumps(ROW), "damaged"),
        ({"doc_id": "zero"}, "missing"),
        ({"outcomes": [1, 2]}, "damaged"),
        ({"outcomes": [1, True]}, "damaged"),
        ({"outcomes": 3}, "damaged"),
        ({"answers": ["a"]}, "damaged"),
        ({"signals": [1]}, "damaged"),
        ({"setting": ["day1"]}, "damaged"),
        ({"outcomes": [None, None]}, "missing"),
        (json.dumps(row(0, perplexity=3.5)), "missing"),
        (json.dumps(row(0, bypass=None)), "missing"),
    ],
)
def test_samples_that_cannot_be_counted_are_refused(tmp_path, line, rule):
    text = line if isinstance(line, str) else json.dumps({**ROW, **line}) + "\n"
    write_run(tmp_path, []).write_bytes(text.encode("utf-8", "surrogateescape"))
    with refused("RUN", rule):
        read_runs([tmp_path])


def test_a_question_that_was_logged_twice(tmp_path):
    again = [row(0, outcomes=[1, 0], seed=[5, 6]), row(0, outcomes=[1, 1], seed=[5, 7])]
    samples = write_run(tmp_path, again)
    with refused("RUN", "duplicate"):
        read_runs([tmp_path])
    saved = read_runs([tmp_path], dedupe=True)
    # the texts of seed 5 are the same, so that is one trial; seed 7 is another one
    assert saved.runs[0].trials[0].tolist() == [1, 0, 1]
    (warning,) = saved.warnings
    assert warning.startswith(f"1 trials of {samples}")
    other = {**again[1], "doc_hash": "another"}
    samples.write_text("".join(json.dumps(line) + "\n" for line in (again[0], other)))
    with refused("RUN", "duplicate", "question 0 with several documents"):
        read_runs([tmp_path], dedupe=True)


def test_a_document_that_stands_twice_in_a_task_is_two_questions(tmp_path):
    doc = {"problem": "again?"}
    write_run(tmp_path, [row(0, doc=doc, outcomes=[1]), row(1, doc=doc, outcomes=[0])])
    saved = read_runs([tmp_path])
    digest = sha(json.dumps(doc, indent=2))
    assert saved.runs[0].question_ids == (digest, f"{digest}#2")
    assert len(saved.warnings) == 1


def test_tasks_of_a_folder_that_nothing_can_be_counted_of_are_left_out(tmp_path):
    groups = {"both": ["words", TASK, "gone"], "all": ["both"], TASK: [], "loop": ["loop"]}
    write_run(tmp_path, [row(0, perplexity=3.5)], task="words")
    configs = {"words": {}, TASK: {"metadata": {"bayes": {"weights": [0, 1]}}}}
    write_run(tmp_path, [row(0, outcomes=[1])], configs=configs, group_subtasks=groups)
    saved = read_runs([tmp_path])
    assert saved.tasks == (TASK,)
    assert saved.groups == {"both": (TASK,), "all": (TASK,)}
    of_task, *of_groups = saved.warnings
    assert "perplexity" in of_task
    for warning, group in zip(of_groups, ("both", "all"), strict=True):
        assert f"words, gone in group {group}" in warning


def test_only_a_task_or_a_group(tmp_path):
    tasks = ("a", "b", "c")
    for task in tasks:
        configs = {name: {} for name in tasks}
        groups = {"ab": ["a", "b"]}
        write_run(tmp_path, [row(0, acc=1)], task=task, configs=configs, group_subtasks=groups)
    assert read_runs([tmp_path]).tasks == tasks
    assert read_runs(tmp_path, task="c").tasks == ("c",)
    assert read_runs(tmp_path, task="c").groups == {}
    assert read_runs(tmp_path, task="ab").groups == {"ab": ("a", "b")}
    with refused("RUN", "choice"):
        read_runs(tmp_path, task="d")


@pytest.mark.parametrize("weights", [3, ["a"]])
def test_odd_weights_in_the_results_are_refused(tmp_path, weights):
    config = {TASK: {"metadata": {"bayes": {"weights": weights}}}}
    write_run(tmp_path, [row(0, outcomes=[1])], configs=config)
    with refused("RUN", "missing"):
        read_runs(tmp_path)


def test_no_path_is_no_run():
    with refused("RUN", "empty"):
        read_runs([])


@pytest.mark.parametrize(
    ("counted", "note", "warning"),
    [
        ({"original": 9, "effective": 2}, "2 of the task's 9 questions", None),
        ({"original": 9, "effective": 3}, None, "2 of 3 questions"),
    ],
)
def test_questions_that_are_not_there(tmp_path, counted, note, warning):
    rows = [row(n, outcomes=[0, 1]) for n in range(2)]
    write_run(tmp_path, rows, **{"n-samples": {TASK: counted}})
    saved = read_runs([tmp_path])
    for texts, expected in ((saved.runs[0].notes, note), (saved.warnings, warning)):
        about = [text for text in texts if "questions" in text]
        assert len(about) == (expected is not None)
        assert all(expected in text for text in about)


def test_repeats_that_got_one_grade_are_one_trial(tmp_path):
    write_run(tmp_path, [row(0, exact_match=1.0, texts=["a", "b", "c"])])
    run = read_one(tmp_path)
    assert run.n_trials == 1
    assert "3 texts" in run.notes[0]


def test_the_bytes_that_were_read_are_told(tmp_path):
    samples = write_run(tmp_path, [row(0, outcomes=[1]), row(1, outcomes=[1])])
    progress = []
    read_runs([tmp_path], progress=lambda done, total: progress.append((done, total)))
    size = samples.stat().st_size
    assert progress[-1] == (size, size)
    assert [done for done, _ in progress] == sorted({done for done, _ in progress})


def test_a_metric_of_graded_trials_is_refused(tmp_path):
    write_run(tmp_path, [row(0, outcomes=[1])])
    with refused("metric", "conflict", "acc"):
        read_runs(tmp_path, metric="acc")
