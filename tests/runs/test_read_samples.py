"""What is read of the harness's samples, ours and everybody's, and what is refused."""

import json
import math

import numpy as np
import pytest
from _support.run_files import LATER, SENT, STAMP, TASK, row, sha, write_run

from lm_eval_bayes.errors import InvalidInputError
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


def test_a_log_whose_rows_use_prior_evidence_has_a_note(tmp_path):
    config = {"task": TASK, "metadata": {"bayes_prior": "runs/earlier", "bayes": {"n": 2}}}
    write_run(tmp_path, [row(0, outcomes=[1, 0])], configs={TASK: config})
    run = read_one(tmp_path)
    assert run.outcomes.counts.tolist() == [[1, 1]]
    assert "an earlier run as prior evidence (`bayes_prior`: runs/earlier)" in run.notes[-1]


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
    assert run.notes == (
        "exact_match was counted; --metric chooses among exact_match or bleu",
        "filter strict was counted; --filter chooses among strict or flexible",
    )
    other = read_one(tmp_path, filter="flexible", metric="bleu")
    assert (other.metric, other.filter, other.notes) == ("bleu", "flexible", ())
    assert other.outcomes.counts.tolist() == [[0, 1], [1, 0]]
    with pytest.raises(InvalidInputError, match="`metric` must be a metric of zeros and ones "):
        read_runs([tmp_path], metric="f1")
    with pytest.raises(InvalidInputError, match="'strict' or 'flexible'; got 'loose'"):
        read_runs([tmp_path], filter="loose")


def test_a_metric_that_is_better_lower_is_not_taken_unasked(tmp_path):
    better = {TASK: {"wrong": False, "right": True}}
    write_run(tmp_path, [row(0, wrong=1, right=0)], higher_is_better=better)
    assert read_one(tmp_path).metric == "right"
    assert read_one(tmp_path, metric="wrong").metric == "wrong"


def test_likelihoods_and_an_ungraded_question(tmp_path):
    rows = [row(0, acc=1.0), row(1, acc=None), row(2, acc=0.0)]
    for one in rows:
        one["arguments"] = {f"gen_args_{i}": {"arg_0": "Q", "arg_1": f" {i}"} for i in range(2)}
        one["resps"] = [[["-1.5", "False"]], [["-2.5", "False"]]]
    write_run(tmp_path, rows)
    found = read_runs([tmp_path])
    assert [trials.tolist() for trials in found.runs[0].trials] == [[1], [], [0]]
    assert found.warnings == (f"task {TASK}: 1 of 3 questions have no trial of org/model",)


def test_repeats_that_got_one_grade_are_one_trial(tmp_path):
    write_run(tmp_path, [row(0, exact_match=1.0, texts=["a", "b", "c"])])
    run = read_one(tmp_path)
    assert run.n_trials == 1
    assert "3 texts of a question one grade" in run.notes[0]


def test_averages_of_the_metric_bayes_are_counts(tmp_path):
    averages = [1 / 3, 2 / 3, 1.0]
    rows = [row(n, **{"bayes@3": 0.5, "avg@3": a, "pass@3": 1.0}) for n, a in enumerate(averages)]
    samples = write_run(tmp_path, rows)
    run = read_one(tmp_path)
    assert run.outcomes.counts.tolist() == [[2, 1], [1, 2], [0, 3]]
    assert (run.metric, run.trials) == ("graded trials", None)
    again = write_run(tmp_path, rows[:1], stamp=LATER)
    found = read_runs([tmp_path])
    assert found.runs[0].n_trials == 3
    assert f"{samples.name} was left out, because {again.name} is newer" in found.warnings[0]
    again.unlink()
    write_run(tmp_path, rows + rows[:1])
    with pytest.raises(InvalidInputError, match=r"question 0 twice$"):
        read_runs([tmp_path], dedupe=True)
    write_run(tmp_path, [row(0, **{"bayes@3": 0.5, "avg@3": 0.5})])
    with pytest.raises(InvalidInputError, match=r"average score of 3 trials .*avg@3 = 0\.5"):
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


def test_results_that_were_given_a_name(tmp_path):
    """With `--output_path mine.json` the harness writes mine_<stamp>.json."""
    samples = write_run(tmp_path, [row(0, outcomes=[1])], model="org/other")
    samples.with_name(f"results_{STAMP}.json").rename(tmp_path / f"mine_{STAMP}.json")
    assert read_one(tmp_path).model == "org/other"
    assert read_one(tmp_path / f"mine_{STAMP}.json").model == "org/other"


def test_the_last_line_may_be_cut_off_unless_it_is_the_only_one(tmp_path):
    samples = write_run(tmp_path, [row(0, outcomes=[1]), row(1, outcomes=[1])])
    whole = samples.read_text()
    samples.write_text(whole[:-40])
    found = read_runs([tmp_path])
    assert found.runs[0].n_questions == 1
    assert found.warnings == (f"{samples} ends in the middle of line 2; that line was left out",)
    samples.write_text(whole[:40])
    with pytest.raises(InvalidInputError, match=r"have a complete .*samples_.*line 1"):
        read_runs([tmp_path])


ROW = row(0, outcomes=[1, 0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "hold a line per question"),
        ("{broken}\n" + json.dumps(ROW), "have a complete .*samples_.*line 1"),
        ("[1]\n", "an array of other values than objects"),
        ("\udcff\n", "have a complete .*samples_"),
        ("[" * 100_000 + "\n", "have a complete .*samples_"),
        ('{"doc_id": 0, "doc": ' + '{"a":' * 900 + "1" + "}" * 900 + "}\n", "log graded|nested"),
        (json.dumps({**ROW, "doc_id": "zero"}) + "\n", "number its questions"),
        (json.dumps({**ROW, "outcomes": [1, 2]}) + "\n", "outcome 2 is no category of 0..1"),
        (json.dumps({**ROW, "outcomes": [1, True]}) + "\n", "outcome True is no category"),
        (json.dumps({**ROW, "outcomes": [1, 0.5]}) + "\n", "outcome 0.5 is no category"),
        (json.dumps({**ROW, "outcomes": 3}) + "\n", "`outcomes` is no list"),
        (json.dumps({**ROW, "answers": ["a"]}) + "\n", "2 trials and 1 `answers`"),
        (json.dumps({**ROW, "signals": {"seed": [1]}}) + "\n", "2 trials and 1 `seed`"),
        (json.dumps({**ROW, "signals": [1]}) + "\n", "`signals` holds no lists"),
        (json.dumps({**ROW, "outcomes": [None, None]}) + "\n", "hold a graded trial of task"),
        (json.dumps(row(0, perplexity=3.5)) + "\n", "log graded trials or a metric of zeros"),
        (json.dumps(row(0, bypass=None)) + "\n", "--regrade grades the texts"),
    ],
)
def test_samples_that_cannot_be_counted_are_refused(tmp_path, text, message):
    write_run(tmp_path, []).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InvalidInputError, match=f"`RUN` must .*({message})"):
        read_runs([tmp_path])


def test_a_question_that_was_logged_twice(tmp_path):
    again = [row(0, outcomes=[1, 0], seed=[5, 6]), row(0, outcomes=[1, 1], seed=[5, 7])]
    samples = write_run(tmp_path, again)
    with pytest.raises(InvalidInputError, match=r"log every question once .*question 0 twice"):
        read_runs([tmp_path])
    found = read_runs([tmp_path], dedupe=True)
    # the texts of seed 5 are the same, so that is one trial; seed 7 is another one
    assert found.runs[0].trials[0].tolist() == [1, 0, 1]
    assert found.warnings == (
        f"{samples} has question 0 2 times; each of its trials was counted once",
    )
    other = {**again[1], "doc_hash": "another"}
    samples.write_text("".join(json.dumps(one) + "\n" for one in (again[0], other)))
    with pytest.raises(InvalidInputError, match="two documents for question 0"):
        read_runs([tmp_path], dedupe=True)


def test_a_document_that_stands_twice_in_a_task_is_two_questions(tmp_path):
    doc = {"problem": "again?"}
    write_run(tmp_path, [row(0, doc=doc, outcomes=[1]), row(1, doc=doc, outcomes=[0])])
    found = read_runs([tmp_path])
    digest = sha(json.dumps(doc, indent=2))
    assert found.runs[0].question_ids == (digest, f"{digest}#2")
    assert "1 of its questions a second time" in found.warnings[0]


def test_tasks_of_a_folder_that_nothing_can_be_counted_of_are_left_out(tmp_path):
    groups = {"both": ["words", TASK, "gone"], "all": ["both"], TASK: [], "loop": ["loop"]}
    write_run(tmp_path, [row(0, perplexity=3.5)], task="words")
    configs = {"words": {}, TASK: {"metadata": {"bayes": {"weights": [0, 1]}}}}
    write_run(tmp_path, [row(0, outcomes=[1])], configs=configs, group_subtasks=groups)
    found = read_runs([tmp_path])
    assert found.tasks == (TASK,)
    assert found.groups == {"both": (TASK,), "all": (TASK,)}
    assert found.warnings == (
        "left out: task words, which logs no metric of zeros and ones (perplexity)",
        "nothing was read of words, gone in group both",
        "nothing was read of words, gone in group all",
    )


def test_only_a_task_or_a_group(tmp_path):
    tasks = ("a", "b", "c")
    for task in tasks:
        configs = {one: {} for one in tasks}
        groups = {"ab": ["a", "b"]}
        write_run(tmp_path, [row(0, acc=1)], task=task, configs=configs, group_subtasks=groups)
    assert read_runs([tmp_path]).tasks == tasks
    assert read_runs(tmp_path, task="c").tasks == ("c",)
    assert read_runs(tmp_path, task="c").groups == {}
    assert read_runs(tmp_path, task="ab").groups == {"ab": ("a", "b")}
    with pytest.raises(InvalidInputError, match="hold task d; there is a, b, c"):
        read_runs(tmp_path, task="d")


def test_what_no_task_could_be_asked_for_is_refused(tmp_path):
    write_run(tmp_path, [row(0, outcomes=[1])])
    with pytest.raises(InvalidInputError, match=r"`metric` must be left out: .* graded trials"):
        read_runs(tmp_path, metric="acc")


@pytest.mark.parametrize(
    "bayes", [{"weights": 3}, {"weights": ["a"]}, {"weights": [1]}, {"weights": {}}, 7]
)
def test_odd_settings_in_the_results(tmp_path, bayes):
    config = {TASK: {"metadata": {"bayes": bayes}}}
    write_run(tmp_path, [row(0, outcomes=[1])], configs=config)
    if bayes in ({"weights": {}}, 7):  # nothing is said, so right and wrong are
        assert read_one(tmp_path).outcomes.weights.tolist() == [0, 1]
        return
    with pytest.raises(InvalidInputError, match=f"scores of the categories of task {TASK}"):
        read_runs(tmp_path)


def test_results_may_hold_anything(tmp_path):
    for odd in (None, [], "x", 3, {"a": []}):
        names = ("config", "configs", "versions", "n-shot", "group_subtasks", "date")
        samples = write_run(tmp_path, [row(0, acc=1)], **dict.fromkeys(names, odd))
        assert read_one(samples).n_trials == 1
    text = json.dumps({"configs": {TASK: {"metadata": [1], "metric_list": 3, "dataset_kwargs": 1}}})
    (tmp_path / f"results_{STAMP}.json").write_text(text)
    assert read_one(tmp_path).n_trials == 1


def test_what_is_no_run(tmp_path):
    for path, message in (("nowhere", "this path does not exist"), ("a\0b", "a folder that")):
        with pytest.raises(InvalidInputError, match=f"`RUN` must be a run.*{message}"):
            read_runs([path])
    with pytest.raises(InvalidInputError, match="this folder is empty"):
        read_runs([tmp_path])
    with pytest.raises(InvalidInputError, match="name at least one run"):
        read_runs([])
    other = tmp_path / "notes.txt"
    other.write_text("hello, I am no store")
    with pytest.raises(InvalidInputError, match="be a run: a folder that"):
        read_runs([other])
    lines = tmp_path / "other.jsonl"
    lines.write_text('{"a": 1}\n')
    with pytest.raises(
        InvalidInputError, match=r"columns of questions and scores in other\.jsonl.*; got 'a'"
    ):
        read_runs([lines])


def test_the_bytes_that_were_read_are_told(tmp_path):
    samples = write_run(tmp_path, [row(0, outcomes=[1]), row(1, outcomes=[1])])
    told = []
    read_runs([tmp_path], progress=lambda done, total: told.append((done, total)))
    size = samples.stat().st_size
    assert told[-1] == (size, size)
    assert [done for done, _ in told] == sorted({done for done, _ in told})


@pytest.mark.parametrize(
    ("counted", "note", "warning"),
    [
        ({"original": 9, "effective": 2}, "2 of the task's 9 questions were asked", None),
        ({"original": 9, "effective": 3}, None, "is cut off: it has 2 of 3 questions"),
        ({"original": 2, "effective": 2}, None, None),
    ],
)
def test_questions_that_are_not_there(tmp_path, counted, note, warning):
    rows = [row(n, outcomes=[0, 1]) for n in range(2)]
    write_run(tmp_path, rows, **{"n-samples": {TASK: counted}})
    found = read_runs([tmp_path])
    assert [n for n in found.runs[0].notes if "questions" in n] == ([note] if note else [])
    assert [w.partition(" ")[2] for w in found.warnings] == ([warning] if warning else [])
