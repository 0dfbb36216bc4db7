"""`lm-eval-bayes run …`: what it refuses before anything is sampled, and how it ends."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest
from _support.command_line import called
from _support.harness_command import few_tasks

from lm_eval_bayes.harness.models.biased_coin.model import CoinSampling
from lm_eval_bayes.store.trial_store import TrialStore

pytestmark = pytest.mark.filterwarnings("default")

TASK = "demo_arithmetic_bayes"
MODEL = ("--model", "biased_coin", "--model_args", "beta=2:3")
COIN = (*MODEL, "--tasks", TASK)

PLAIN = """
task: plain_demo
output_type: generate_until
custom_dataset: !function lm_eval_bayes.tasks.demo_questions
test_split: test
doc_to_text: "{{problem}}"
doc_to_target: "{{answer}}"
generation_kwargs: {do_sample: false, until: []}
metric_list: [{metric: exact_match}]
"""
BROKEN = PLAIN.replace("plain_demo", "broken_demo").replace(
    "output_type",
    "class: !function lm_eval_bayes.tasks.RepeatedSamplingTask\noutput_type",
)
BROKEN = BROKEN.replace("do_sample: false", "do_sample: true, temperature: 1.0").replace(
    '"{{problem}}"', "!function broken.text"
)
BROKEN_TEXT = """
asked = []


def text(doc):
    asked.append(doc)
    if len(asked) > 30:
        raise KeyError("no such field")
    return doc["problem"]
"""


@pytest.fixture
def store(tmp_path):
    return tmp_path / "trials.sqlite"


@pytest.fixture
def lmeb(store):
    """Run `lm-eval-bayes run` on a store; return (exit code, standard output, standard error)."""

    def run(*arguments, store=store):
        return called("run", *(() if store is None else ("--store", store)), *arguments)

    with few_tasks():
        yield run


@pytest.fixture
def refused(lmeb, store):
    """Run what must end in one sentence and exit code 2, before anything is sampled."""

    def run(*arguments):
        code, out, err = lmeb(*arguments)
        assert code == 2
        assert "Traceback" not in out + err
        message = [line for line in err.splitlines() if line.startswith("error: ")]
        assert len(message) == 1
        if store.exists():
            with TrialStore.open(store, mode="read") as opened:
                assert opened.info().trials == 0
        return message[0]

    return run


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_before_anything_is_sampled_tells_which_one_it_was(
    lmeb, monkeypatch, signum, code
):
    def interrupted(*arguments, **more):
        signal.raise_signal(signum)

    # a shell's background jobs ignore SIGINT from their start
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr("lm_eval_bayes.harness.adaptive.rounds.Rounds.__call__", interrupted)
    try:
        ended, _, err = lmeb(*COIN, "--width", "0.1")
    finally:
        signal.signal(signal.SIGINT, before)
    assert (ended, err.splitlines()[-1]) == (code, "stopped")


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_results_are_written_after_a_signal_while_sampling(lmeb, monkeypatch, tmp_path, name):
    signum, calls = getattr(signal, name), []
    sample = CoinSampling.sample

    def interrupted(self, requests, measure):
        calls.append(requests)
        if len(calls) > 1:
            signal.raise_signal(signum)
        return sample(self, requests, measure)

    before = signal.signal(signum, signal.SIG_DFL)
    monkeypatch.setattr(CoinSampling, "sample", interrupted)
    try:
        ended, _, err = lmeb(
            *("--width", "0.01", *COIN, "--limit", "10"),
            *("--output_path", tmp_path / "out", "--log_samples"),
        )
    finally:
        signal.signal(signum, before)
    assert ended == 128 + signum
    assert "stopped: interrupted" in err
    (path,) = (tmp_path / "out").rglob("results_*.json")
    stopping = json.loads(path.read_text())["config"]["stopping"]
    assert stopping["reason"] == "interrupted"
    assert [r["trials"] for r in stopping["rounds"]] == [4]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*MODEL, "--tasks", "nosuchtask"), "Tasks not found: nosuchtask"),
        (MODEL, "`--tasks` must name at least one task"),
        ((*COIN, "--limit", "0"), "`--limit` must leave at least one question; got 0"),
        ((*COIN, "--samples", json.dumps({TASK: [999]})), "Elements of --samples should be in"),
        ((*COIN, "--log_samples"), "Specify --output_path if providing --log_samples"),
        ((*COIN, "--config", "no.yaml"), r"Config file not found: .*no\.yaml"),
        ((*COIN, "--predict_only", "--output_path", "o"), "`--predict_only` must be left out"),
        ((*MODEL[2:], "--model", "nosuch", "--tasks", TASK), "`backend` must be a model of the"),
    ],
)
def test_what_the_harness_cannot_run_is_told_in_one_sentence(refused, arguments, message):
    assert re.match(f"error: {message}", refused("--width", "0.1", *arguments))


def test_a_backend_that_is_not_installed_names_the_extra(refused, monkeypatch):
    def missing(name):
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr("lm_eval_bayes.harness.models.backends.get_model", missing)
    message = refused("--width", "0.1", "--tasks", TASK)
    assert "needs the package `torch`, which is not installed" in message
    assert "pip install 'lm-eval[hf]'" in message


def test_requests_that_cannot_be_built_are_told_in_one_sentence(refused, tmp_path):
    (tmp_path / "broken.yaml").write_text(BROKEN)
    (tmp_path / "broken.py").write_text(BROKEN_TEXT)
    message = refused(
        *("--width", "0.1", *MODEL, "--tasks", "broken_demo", "--include_path", tmp_path)
    )
    assert message == "error: KeyError: 'no such field'"


def test_a_bug_while_sampling_keeps_its_traceback(lmeb, monkeypatch):
    def broken(self, orders, measure):
        raise ValueError("a bug")

    monkeypatch.setattr(CoinSampling, "sample", broken)
    with pytest.raises(ValueError, match="a bug"):
        lmeb("--width", "0.1", *COIN)


# -- goals that cannot be meant -------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--width", "2"),
            f"`--width` must be below 1, since the score of task {TASK} goes from 0",
        ),
        (("--width", "1"), "`--width` must be below 1"),
        (("--width", ".1", "--correction", "foo"), "`--correction` must be one of"),
        (("--width", ".1", "--correction", "none"), "`--correction` must be given with --decide"),
        (("--budget", "8", "--batch-trials", "0"), "`--batch-trials` must be an integer"),
        (("--budget", "8x"), "`--budget` must be a number of trials"),
        (("--budget", "0.5"), "`--budget` must be at least one trial per question"),
        (
            ("--width", ".1", "--metadata", '{"bayes_n": 4}'),
            "`--metadata` must leave out bayes_n: .*--batch-trials up to --max-trials; got 4",
        ),
        (
            ("--width", ".1", "--metadata", '{"bayes_extra_trials": {"3": 2}}'),
            "`--metadata` must leave out bayes_extra_trials: use --allocate questions",
        ),
    ],
)
def test_goals_that_cannot_be_meant_are_refused(refused, arguments, message):
    assert re.match(f"error: {message}", refused(*arguments, *COIN))


def test_a_run_without_a_store_is_refused(lmeb):
    code, _, error = lmeb("--budget", "2", *COIN, store=None)
    assert code == 2
    assert "`--store` must name the file of the trials" in error
    assert error.rstrip().endswith("; got neither of them")


def test_the_metadata_of_a_config_file_count(refused, lmeb, tmp_path):
    config = tmp_path / "run.yaml"
    config.write_text("metadata: {bayes_n: 4}\n")
    assert "leave out bayes_n" in refused("--width", ".2", "--config", config, *COIN)
    config.write_text("metadata: {bayes_level: 0.5}\nlimit: 5\n")
    out = tmp_path / "out"
    code, _, _ = lmeb("--budget", "2", "--config", config, *COIN, "--output_path", out)
    assert code == 0
    results = json.loads(next(out.rglob("results_*.json")).read_text())
    assert results["configs"][TASK]["metadata"]["bayes"]["level"] == 0.5


def test_a_task_of_another_kind_is_refused_before_sampling(refused, tmp_path):
    (tmp_path / "plain.yaml").write_text(PLAIN)
    message = refused("--width", ".1", *MODEL, "--tasks", "plain_demo", "--include_path", tmp_path)
    assert message.startswith("error: task plain_demo logs no graded trials")


def test_allocation_over_several_tasks_is_refused_before_sampling(refused, tmp_path):
    (tmp_path / "second.yaml").write_text(f"include: {TASK}.yaml\ntask: second_demo\n")
    (tmp_path / f"{TASK}.yaml").write_text(BROKEN.replace("!function broken.text", '"{{problem}}"'))
    message = refused(
        *("--width", ".1", "--allocate", "questions", *MODEL, "--include_path", tmp_path),
        *("--tasks", "broken_demo,second_demo"),
    )
    assert "--allocate questions works on one task at a time; there are 2" in message


# -- another run ----------------------------------------------------------------------------


@pytest.fixture
def other(lmeb, tmp_path):
    """Return the output folder of a finished run on ten questions."""
    out = tmp_path / "other"
    lmeb(
        *("--budget", "4", *COIN, "--limit", "10", "--output_path", out, "--log_samples"),
        store=tmp_path / "other.sqlite",
    )
    return out


@pytest.mark.parametrize("kind", ["folder", "store"])
@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("6", "has 4 questions of {task} that this run does not ask; both must ask the same"),
        ("11", "lacks 1 question of {task} that this run asks; both must ask the same questions"),
    ],
)
def test_other_questions_are_refused_before_sampling(refused, other, kind, limit, message):
    run = other if kind == "folder" else other.with_suffix(".sqlite")
    text = refused("--decide", run, *COIN, "--limit", limit)
    assert text.startswith(f"error: --decide: the run {run} {message.format(task=TASK)}")


def test_a_baseline_that_holds_trials_twice_is_refused_with_what_run_can_do(
    refused, other, tmp_path
):
    for folder in ("first", "second"):
        shutil.copytree(other, tmp_path / "both" / folder)
    message = refused("--decide", tmp_path / "both", *COIN, "--limit", "10")
    assert "once (name only one of them): 40 of 40 trials of" in message
    assert "--dedupe" not in message


def test_other_questions_of_the_same_number_are_refused(refused, other):
    message = refused("--decide", other, *COIN, "--samples", json.dumps({TASK: list(range(2, 12))}))
    assert f"has 2 questions of {TASK} that this run does not ask and lacks 2 questions" in message


def test_another_task_is_refused_before_sampling(refused, other, tmp_path):
    (tmp_path / "mine.yaml").write_text(BROKEN.replace("!function broken.text", '"{{problem}}"'))
    message = refused(
        *("--decide", other, *MODEL, "--tasks", "broken_demo", "--include_path", tmp_path)
    )
    assert f"has no graded trials of broken_demo; it has those of {TASK}" in message


def test_other_scores_are_refused_before_sampling(refused, other):
    given = ("--metadata", '{"bayes_weights": [0, 0.5]}')
    message = refused("--decide", other, *COIN, "--limit", "10", *given)
    assert f"scores the categories of {TASK} with 0, 1, and this run with 0, 0.5" in message


def test_too_few_trials_for_a_decision_are_refused(refused, lmeb, other):
    message = refused("--decide", other, *COIN, "--limit", "10", "--budget", "3")
    assert "needs at least 4 trials per question; --max-trials or --budget allows 3" in message


def test_the_same_questions_are_compared(lmeb, other):
    chosen = ("--samples", json.dumps({TASK: list(range(10))}))
    code, _, err = lmeb("--decide", other, *COIN, *chosen, "--max-trials", "4")
    assert code == 0
    assert "difference +0.0000 (sd 0." in err
    assert "z = 0 is below" in err
    (note,) = [line for line in err.splitlines() if line.startswith(f"note: {TASK}: ")]
    assert f"{TASK}: hbayes@N does not keep to the rate of 0.05 on 10 questions" in note


# -- how it ends ----------------------------------------------------------------------------


def test_results_that_cannot_be_written_are_an_error(lmeb, store, tmp_path):
    out = tmp_path / "a file"
    out.write_text("")
    code, _, err = lmeb("--budget", "2", *COIN, "--limit", "3", "--output_path", out)
    assert code == 2
    last = err.splitlines()[-1]
    assert last.startswith(f"error: results could not be written to {out}")
    assert last.endswith(
        f"all trials are in {store}: run the same command again with another --output_path"
    )
    # and that is true
    code, _, err = lmeb("--budget", "2", *COIN, "--limit", "3", "--output_path", tmp_path / "new")
    assert code == 0
    with TrialStore.open(store, mode="read") as opened:
        assert opened.info().trials == 6


@pytest.mark.parametrize("file", ["results", "samples"])
def test_a_full_disk_is_an_error(lmeb, monkeypatch, tmp_path, file):
    opened, out = Path.open, tmp_path / "out"

    def full(name):
        if Path(name).name.startswith(f"{file}_"):
            Path(name).write_bytes(b'{"results": ' if file == "results" else b"")
            raise OSError(errno.ENOSPC, "No space left on device")

    def open_or_fail(self, mode="r", *given, **named):
        if mode == "w":
            full(self)
        return opened(self, mode, *given, **named)

    def open_to_append(name, mode="r", *given, **named):
        if mode == "a":
            full(name)
        return open(name, mode, *given, **named)

    def write_or_fail(self, text, **named):
        with open_or_fail(self, "w") as file:
            return file.write(text)

    from lm_eval.loggers import evaluation_tracker

    monkeypatch.setattr(Path, "open", open_or_fail)
    monkeypatch.setattr(Path, "write_text", write_or_fail)
    monkeypatch.setattr(evaluation_tracker, "open", open_to_append, raising=False)
    code, _, err = lmeb(
        *("--budget", "2", *COIN, "--limit", "3", "--output_path", out, "--log_samples"),
        store=None,
    )
    assert code == 2
    last = err.splitlines()[-1]
    assert re.search(rf"written to {out} \({file}_.* is missing or cut off\)", last)
    saved = out / "trials.sqlite"
    assert last.endswith(f"with another --output_path and --store {saved}")
    assert saved.is_file()


def test_a_round_that_costs_more_than_the_budget_is_named(lmeb):
    code, _, err = lmeb("--width", ".05", "--budget", "500tokens", *COIN, "--limit", "10")
    assert code == 0
    message = (
        r"the first round already cost (1,\d{3}|[6-9]\d\d) tokens, more than the budget of 500"
    )
    assert re.search(rf"stopped: {message} tokens; at least one round is sampled", err)


def test_help_says_that_one_round_is_made(lmeb):
    _, out, _ = lmeb("--help", store=None)
    text = " ".join(out.split())
    assert "At least one round is sampled" in text
    assert "[default: pocock]" in text
    assert "[default: 0.95]" in text


def test_the_line_of_a_round_tells_the_fewest_and_the_most_trials(lmeb):
    code, out, err = lmeb(
        "--width", ".15", "--allocate", "questions", "--max-trials", "40", *COIN, "--limit", "12"
    )
    assert code == 0
    fewest = re.findall(r"N (\d+) to (\d+) ", err)[-1]
    assert int(fewest[0]) < int(fewest[1])
    assert f"hbayes@{fewest[0]} " in out
    assert f"{TASK}  N 4  mu" in err
