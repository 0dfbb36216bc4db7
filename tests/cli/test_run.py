"""`lm-eval-bayes run …`: what it refuses before anything is sampled, and how it ends."""

from __future__ import annotations

import errno
import json
import re
import shutil
import signal
import warnings
from functools import partial
from pathlib import Path

import pytest
from _support.command_line import called, command_error, error_of, invoked
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


@pytest.fixture(autouse=True)
def tasks_of_the_demo():
    with few_tasks():
        yield


@pytest.fixture
def lmeb(store):
    """Run `lm-eval-bayes run` on a store; return (exit code, standard output, standard error)."""
    return partial(called, "run", "--store", store)


@pytest.fixture
def run_error(store):
    """Run what must end with one error before anything is sampled; return the error."""

    def run(*arguments):
        error = command_error("run", "--store", store, *arguments)
        if store.exists():
            with TrialStore.open(store, mode="read") as opened:
                assert opened.info().trials == 0
        return error

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


def test_results_are_written_after_a_signal_while_sampling(lmeb, monkeypatch, tmp_path):
    signum, calls = signal.SIGTERM, []
    sample = CoinSampling.sample

    def interrupted(self, requests, measure):
        for pair in sample(self, requests, measure):
            calls.append(pair)
            if len(calls) == 45:
                signal.raise_signal(signum)
            yield pair

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
    assert "Stopped: interrupted" in err
    (path,) = (tmp_path / "out").rglob("results_*.json")
    stopping = json.loads(path.read_text())["config"]["stopping"]
    assert stopping["reason"] == "interrupted"
    assert [r["trials"] for r in stopping["rounds"]] == [4]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((*MODEL, "--tasks", "nosuchtask"), "nosuchtask"),
        (MODEL, "--tasks"),
        ((*COIN, "--limit", "0"), "--limit"),
        ((*COIN, "--samples", json.dumps({TASK: [999]})), "--samples"),
        ((*COIN, "--log_samples"), "--output_path"),
        ((*COIN, "--config", "no.yaml"), "no.yaml"),
        ((*COIN, "--predict_only", "--output_path", "o"), "--predict_only"),
        ((*MODEL[2:], "--model", "nosuch", "--tasks", TASK), "nosuch"),
    ],
)
def test_what_the_harness_cannot_run_is_told_in_one_sentence(run_error, arguments, named):
    assert named in str(run_error("--width", "0.1", *arguments))


def test_a_backend_that_is_not_installed_names_the_extra(run_error, monkeypatch):
    def missing(name):
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr("lm_eval_bayes.harness.models.backends.get_model", missing)
    error = run_error("--width", "0.1", "--tasks", TASK)
    assert (error.argument, error.rule, error.value) == ("--model", "not-installed", "torch")
    assert "pip install 'lm-eval[hf]'" in str(error)


def test_requests_that_cannot_be_built_are_told_in_one_sentence(run_error, tmp_path):
    (tmp_path / "broken.yaml").write_text(BROKEN)
    (tmp_path / "broken.py").write_text(BROKEN_TEXT)
    words = (*MODEL, "--tasks", "broken_demo", "--include_path", tmp_path)
    error = run_error("--width", "0.1", *words)
    assert (error.rule, str(error)) == ("failed", "KeyError: 'no such field'")


def test_a_bug_while_sampling_keeps_its_traceback(lmeb, monkeypatch):
    def broken(self, orders, measure):
        raise ValueError("a bug")

    monkeypatch.setattr(CoinSampling, "sample", broken)
    with pytest.raises(ValueError, match="a bug"):
        lmeb("--width", "0.1", *COIN)


# -- goals that cannot be meant -------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "argument", "rule"),
    [
        ("--width .1 --correction none", "--correction", "conflict"),
        ("--budget 8 --batch-trials 0", "--batch-trials", "range"),
        ('--width .1 --metadata {"bayes_n":4}', "--metadata", "conflict"),
    ],
)
def test_goals_that_cannot_be_meant_are_refused(run_error, words, argument, rule):
    error = run_error(*words.split(), *COIN)
    assert (error.argument, error.rule) == (argument, rule)


def test_the_metadata_of_a_config_file_count(run_error, lmeb, tmp_path):
    config = tmp_path / "run.yaml"
    config.write_text("metadata: {bayes_n: 4}\n")
    assert run_error("--width", ".2", "--config", config, *COIN).argument == "--metadata"
    config.write_text("metadata: {bayes_level: 0.5}\nlimit: 5\n")
    out = tmp_path / "out"
    code, _, _ = lmeb("--budget", "2", "--config", config, *COIN, "--output_path", out)
    assert code == 0
    results = json.loads(next(out.rglob("results_*.json")).read_text())
    assert results["configs"][TASK]["metadata"]["bayes"]["level"] == 0.5


def test_a_task_of_another_kind_is_refused_before_sampling(run_error, tmp_path):
    (tmp_path / "plain.yaml").write_text(PLAIN)
    words = (*MODEL, "--tasks", "plain_demo", "--include_path", tmp_path)
    assert "plain_demo" in str(run_error("--width", ".1", *words))


def test_allocation_over_several_tasks_is_refused_before_sampling(run_error, tmp_path):
    (tmp_path / "second.yaml").write_text(f"include: {TASK}.yaml\ntask: second_demo\n")
    (tmp_path / f"{TASK}.yaml").write_text(BROKEN.replace("!function broken.text", '"{{problem}}"'))
    error = run_error(
        *("--width", ".1", "--allocate", "questions", *MODEL, "--include_path", tmp_path),
        *("--tasks", "broken_demo,second_demo"),
    )
    assert "--allocate" in str(error)


# -- another run ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """Return the output folder of a finished run on ten questions; its store lies beside it."""
    out = tmp_path_factory.mktemp("runs") / "other"
    words = ("--budget", "4", *COIN, "--limit", "10", "--output_path", out, "--log_samples")
    with few_tasks(), warnings.catch_warnings():
        warnings.simplefilter("default")
        called("run", "--store", out.with_suffix(".sqlite"), *words)
    return out


@pytest.mark.parametrize(
    ("kind", "limit", "difference"), [("folder", "6", "4 questions"), ("store", "11", "1 question")]
)
def test_other_questions_are_refused_before_sampling(run_error, other, kind, limit, difference):
    run = other if kind == "folder" else other.with_suffix(".sqlite")
    assert difference in str(run_error("--decide", run, *COIN, "--limit", limit))


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--samples", json.dumps({TASK: list(range(2, 12))})), "2 questions"),
        (("--limit", "10", "--metadata", '{"bayes_weights": [0, 0.5]}'), "0, 0.5"),
        (("--limit", "10", "--budget", "3"), "--budget"),
    ],
    ids=["other questions", "other scores", "too few trials"],
)
def test_runs_that_cannot_be_compared_are_refused_before_sampling(run_error, other, words, named):
    assert named in str(run_error("--decide", other, *COIN, *words))


def test_a_baseline_that_holds_trials_twice_is_refused(run_error, other, tmp_path):
    for folder in ("first", "second"):
        shutil.copytree(other, tmp_path / "both" / folder)
    error = run_error("--decide", tmp_path / "both", *COIN, "--limit", "10")
    assert "40 of 40 trials" in str(error)
    assert "--dedupe" not in str(error)  # `run` has no such option


def test_another_task_is_refused_before_sampling(run_error, other, tmp_path):
    (tmp_path / "mine.yaml").write_text(BROKEN.replace("!function broken.text", '"{{problem}}"'))
    words = (*MODEL, "--tasks", "broken_demo", "--include_path", tmp_path)
    assert "broken_demo" in str(run_error("--decide", other, *words))


def test_the_same_questions_are_compared(lmeb, other):
    chosen = ("--samples", json.dumps({TASK: list(range(10))}))
    code, _, err = lmeb("--decide", other, *COIN, *chosen, "--max-trials", "4")
    assert code == 0
    assert "difference +0.0000 (sd 0." in err
    (note,) = [line for line in err.splitlines() if line.startswith(f"note: {TASK}: ")]
    assert "0.05 on 10 questions" in note


# -- how it ends ----------------------------------------------------------------------------


def test_results_that_cannot_be_written_are_an_error(lmeb, store, tmp_path):
    out = tmp_path / "a file"
    out.write_text("")
    words = ("--budget", "2", *COIN, "--limit", "3", "--output_path")
    error = error_of(invoked("run", "--store", store, *words, out))
    assert (error.argument, error.rule, error.value) == ("--output_path", "failed", str(out))
    # all trials are in the store
    assert lmeb(*words, tmp_path / "new")[0] == 0
    with TrialStore.open(store, mode="read") as opened:
        assert opened.info().trials == 6


def test_a_full_disk_is_an_error(monkeypatch, tmp_path):
    out = tmp_path / "out"

    def open_to_append(name, mode="r", *given, **named):
        if mode == "a" and Path(name).name.startswith("samples_"):
            Path(name).touch()
            raise OSError(errno.ENOSPC, "No space left on device")
        return open(name, mode, *given, **named)

    from lm_eval.loggers import evaluation_tracker

    monkeypatch.setattr(evaluation_tracker, "open", open_to_append, raising=False)
    words = ("--budget", "2", *COIN, "--limit", "3", "--output_path", out, "--log_samples")
    error = error_of(invoked("run", *words))
    assert (error.argument, error.rule) == ("--output_path", "failed")
    assert "(samples_" in str(error)
    assert f"--store {out / 'trials.sqlite'}" in str(error)
    assert (out / "trials.sqlite").is_file()


def test_a_round_that_costs_more_than_the_budget_is_named(lmeb):
    code, _, err = lmeb("--width", ".05", "--budget", "500tokens", *COIN, "--limit", "10")
    assert code == 0
    (about,) = re.findall(r"Stopped: .* the budget of 500 tokens \(about ([\d,]+) tokens\)", err)
    assert int(about.replace(",", "")) > 500


def test_the_line_of_a_round_tells_the_fewest_and_the_most_trials(lmeb):
    words = ("--allocate", "questions", "--max-trials", "40", *COIN, "--limit", "12")
    code, out, err = lmeb("--width", ".15", *words)
    assert code == 0
    fewest, most = re.findall(r"(\d+)-(\d+)  0\.\d{3}", err)[-1]
    assert int(fewest) < int(most)
    assert f"hbayes@{fewest} " in out
