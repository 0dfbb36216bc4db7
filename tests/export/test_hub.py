"""Results for the Hugging Face hub: the file, and the pull request at a hub on loopback."""

from __future__ import annotations

import re
import sys
import types
from math import comb

import numpy as np
import pytest
import yaml
from _support.errors import refused
from _support.hostile import NAMES
from _support.paths import REPOSITORY

from lm_eval_bayes._util.text import scope_label
from lm_eval_bayes.analysis.summary import summarise
from lm_eval_bayes.errors import LmEvalBayesError
from lm_eval_bayes.export.hub import NEEDED, REGISTERED, HubSettings, hub_result
from lm_eval_bayes.export.run_metadata import KNOWN
from lm_eval_bayes.runs.task_run import Provenance, TaskRun
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.intervals import IntervalSpec
from lm_eval_bayes.stats.settings.posterior import score_over_settings

hub_library = pytest.importorskip("huggingface_hub", minversion=NEEDED)

REVISION = "c94da77eb22bbd6439e62a323bec18493a421302"
M, N = 30, 8
TRIALS = np.random.default_rng(6).integers(0, 2, (M, N))


def build(**more):
    about = {
        "backend": "vllm",
        "model_args": {"pretrained": "org/model", "dtype": "bfloat16"},
        "generation_kwargs": {"temperature": 0.6, "top_p": 0.95, "until": ["\n\n"]},
        "date": 1_769_853_600.0,
        "versions": {"lm_eval": "0.4.13", "task": "1.0"},
        "dataset": "MathArena/aime_2025",
        "revision": REVISION,
    }
    return Provenance(**{**about, **more})


def run(task="aime25_bayes", trials=TRIALS, **more):
    more.setdefault("provenance", build())
    ids = [f"q{i}" for i in range(len(trials))]
    return TaskRun.from_trials("model", task, trials, ids, **more)


@pytest.fixture(scope="module")
def summary():
    return summarise(run())


def quick(of):
    """Return a summary without exact intervals."""
    return summarise(of, IntervalSpec(method="normal"))


def read_back(result):
    (entry,) = hub_library.parse_eval_result_entries(yaml.safe_load(result.text))
    return entry


# -- the file ------------------------------------------------------------------------------------


def test_the_hubs_own_library_reads_what_was_meant(summary):
    entry = read_back(hub_result(summary, model_id="org/model"))
    assert entry == hub_library.EvalResultEntry(
        dataset_id="MathArena/aime_2025",
        task_id="MathArena/aime_2025",
        value=round(100 * TRIALS.mean(), 2),
        dataset_revision=REVISION,
        date="2026-01-31T10:00:00Z",
        notes=entry.notes,
    )


def test_the_notes_tell_of_questions_that_were_not_asked():
    limited = quick(run(provenance=build(n_questions=M + 27)))
    assert f"{M} of its {M + 27} questions" in hub_result(limited).notes


def test_the_notes_tell_n_the_interval_and_the_settings(summary):
    result = hub_result(summary)
    interval = hbayes_at_n(run().outcomes).interval(0.95, "exact")
    for fact in (
        f"avg@{N}, {M} questions",
        f"{100 * interval.low:.2f} to {100 * interval.high:.2f}",
        "temperature 0.6, top_p 0.95",
    ):
        assert fact in result.notes
    assert read_back(result).notes == result.notes
    assert len(result.notes) <= 140


def test_the_notes_tell_the_interval_about_settings_like_these():
    setting = (np.repeat([0, 1], N // 2),) * M
    several = quick(run(settings=("one", "two"), setting=setting))
    right = TRIALS.reshape(M, 2, N // 2).sum(axis=2).T
    like = score_over_settings(np.stack([N // 2 - right, right], axis=-1)).like
    for scope, ends in like.items():
        notes = hub_result(several, scope=scope).notes
        assert f"settings like these 2: {100 * ends.low:.2f} to {100 * ends.high:.2f}" in notes


def test_a_dataset_that_is_no_registered_benchmark_is_warned_of(summary):
    def warned(of=summary, **settings):
        warnings = hub_result(of, HubSettings(**settings)).warnings
        return [warning for warning in warnings if "collect" in warning]

    assert "MathArena/aime_2026" in REGISTERED
    assert warned(dataset="MathArena/aime_2026") == []
    own = quick(run("mine", TRIALS[:5], provenance=build(dataset="org/mine", revision="")))
    for (warning,) in (warned(own), warned(dataset="org/mine")):
        assert warning.startswith("org/mine ")
        assert "openai/gsm8k" in warning


def test_another_number_scale_scope_and_level():
    spec = IntervalSpec(0.9, method="beta")
    settings = HubSettings(
        value="pass@4", scale="share", source_url="https://example.org/logs", source_name="Logs"
    )
    actual = hub_result(summarise(run(), spec), settings, scope="population")
    entry = read_back(actual)
    exact = np.mean([1 - comb(N - c, 4) / comb(N, 4) for c in TRIALS.sum(axis=1).tolist()])
    assert entry.value == round(exact, 4)
    # the interval is that of the posterior mean before it, not of the value
    (numbers,) = re.findall(
        rf"^pass@4 of {N} trials, {M} questions; hbayes@8 (0.\d+), 90% interval (0.\d+) to (0.\d+) "
        rf"about {scope_label('population')}",
        entry.notes,
    )
    mean, low, high = map(float, numbers)
    assert low < mean < high < entry.value
    assert (entry.source_url, entry.source_name) == ("https://example.org/logs", "Logs")
    posterior = hbayes_at_n(run().outcomes).mu
    assert hub_result(quick(run()), HubSettings("hbayes@N")).value == round(100 * posterior, 2)


def test_trials_that_differ_in_number_are_told():
    trials = [[0, 1, 1], [1] * 5, [0] * 4]
    result = hub_result(quick(run(trials=trials)))
    assert result.notes.startswith("avg@3 to 5, 3 questions; ")
    # every question counts the same, whatever its trials
    assert result.value == round(100 * (2 / 3 + 1 + 0) / 3, 2)


def test_the_known_benchmarks_have_files_of_their_own():
    files = {item.file for item in KNOWN.values()}
    datasets = {item.dataset for item in KNOWN.values()}
    assert len(files) == len(datasets)
    for name, item in KNOWN.items():
        result = hub_result(quick(run(name, TRIALS[:2], provenance=build(dataset=""))))
        assert result.path == f".eval_results/{item.file}.yaml"
        assert result.dataset_id == item.dataset


def test_our_tasks_run_on_the_datasets_that_are_listed():
    """The table against the task files themselves."""
    folder = REPOSITORY / "task_configs" / "contest_math"
    files = sorted(folder.glob("*_bayes.yaml"))
    assert len(files) == 12  # eleven contests and a group
    for file in files:
        text = file.read_text(encoding="utf-8")
        if "dataset_path" in text:
            assert f"dataset_path: {KNOWN[file.stem].dataset}\n" in text


def test_a_known_name_on_another_dataset_is_another_benchmark():
    other = quick(run("gsm8k", TRIALS[:2], provenance=build(dataset="somebody/gsm8k-hard")))
    result = hub_result(other)
    assert result.path == ".eval_results/gsm8k-own.yaml"
    assert (result.dataset_id, result.task_id) == ("somebody/gsm8k-hard", "default")
    assert any('"default"' in item for item in result.warnings)
    given = hub_result(other, HubSettings(task_id="hard"))
    assert given.task_id == "hard"
    assert not any('"default"' in item for item in given.warnings)


@pytest.mark.parametrize("name", NAMES)
def test_no_name_of_a_task_becomes_a_path_or_a_line(name):
    config = build(dataset="org/data", generation_kwargs={name: name, "temperature": 1})
    result = hub_result(quick(run(name, TRIALS[:2], provenance=config)))
    folder, file = result.path.split("/")
    assert folder == ".eval_results"
    assert file.endswith(".yaml")
    assert set(file) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-.")
    assert read_back(result).notes == result.notes
    assert result.notes.isprintable()
    assert len(result.notes) <= 700


def test_what_was_not_pinned_is_not_given():
    for revision, message in (("", "pinned no revision"), ("main", "pinned main")):
        actual = hub_result(quick(run(trials=TRIALS[:2], provenance=build(revision=revision))))
        assert actual.dataset_revision is None
        assert "revision" not in actual.text
        assert any(message in item for item in actual.warnings)
    given = hub_result(quick(run(trials=TRIALS[:2])), HubSettings(revision="a" * 40))
    assert given.dataset_revision == "a" * 40


def test_another_dataset_than_that_of_the_run_has_no_pinned_revision(summary):
    result = hub_result(summary, HubSettings(dataset="org/other"))
    assert result.dataset_revision is None
    (warning,) = (text for text in result.warnings if "revision" in text)
    assert REVISION in warning
    pinned = hub_result(summary, HubSettings(dataset="org/other", revision="b" * 40))
    assert pinned.dataset_revision == "b" * 40


def test_a_run_of_another_model_is_told(summary):
    assert not any(
        "is exported as" in item for item in hub_result(summary, model_id="org/model").warnings
    )
    message = hub_result(summary, model_id="org/other").warnings[-1]
    assert message == "the run was of org/model, and is exported as org/other"


NOWHERE = run("sums", TRIALS[:2], provenance=build(dataset=""))
POINTS = TaskRun.from_trials(
    "m", "aime25_bayes", [[0, 2], [1, 1]], ["p", "q"], (0.0, 1.0, 5.0), provenance=build()
)


@pytest.mark.parametrize(
    ("of", "settings", "argument", "rule", "came"),
    [
        (run(), {"value": "pass@9"}, "--value", "choice", "pass@9"),
        (run(), {"dataset": "../x"}, "--dataset", "missing", "../x"),
        (run(), {"revision": "main"}, "--revision", "format", "main"),
        (NOWHERE, {}, "--dataset", "missing", "no name"),
        (POINTS, {}, "RUN", "range", "m"),
    ],
)
def test_what_cannot_be_exported(of, settings, argument, rule, came):
    with refused(argument, rule, came):
        hub_result(quick(of), HubSettings(**settings))


def test_an_older_library_is_told_which_is_needed(summary, monkeypatch):
    old = types.ModuleType("huggingface_hub")
    old.__version__ = "1.3.7"
    monkeypatch.setitem(sys.modules, "huggingface_hub", old)
    with refused("huggingface_hub", "not-installed", "1.3.7", error=LmEvalBayesError):
        hub_result(summary)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with refused("huggingface_hub", "not-installed", None, error=LmEvalBayesError):
        hub_result(summary)
