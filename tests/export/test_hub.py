"""Results for the Hugging Face hub: the file, and the pull request at a hub on loopback."""

from __future__ import annotations

import os
import socket
import sys
import types

import numpy as np
import pytest
import yaml
from _support import fake_hub
from _support.hostile import NAMES
from _support.paths import REPOSITORY
from lm_eval_bayes.export.hub_pull_request import open_pull_request

from lm_eval_bayes._util.text import scope_label
from lm_eval_bayes.analysis.summary import summarise
from lm_eval_bayes.errors import InvalidInputError, LmEvalBayesError
from lm_eval_bayes.export.hub import NEEDED, REGISTERED, HubSettings, hub_result
from lm_eval_bayes.export.run_metadata import KNOWN
from lm_eval_bayes.runs.task_run import Provenance, TaskRun
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.intervals import IntervalSpec

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
    limited = summarise(run(provenance=build(n_questions=M + 27)))
    result = hub_result(limited)
    assert f"per question on {M} of its {M + 27} questions; " in result.details
    assert result.notes.startswith(f"avg@{N}, {M} of its {M + 27} questions; ")


def test_the_notes_tell_n_the_interval_and_the_settings(summary):
    result = hub_result(summary)
    notes = result.details
    posterior = hbayes_at_n(run().outcomes)
    interval = posterior.interval(0.95, "exact")
    assert notes.startswith(f"avg@{N} of {N} trials per question on {M} questions; ")
    message = (
        f"95% credible interval of the mean score {100 * interval.low:.2f} to "
        f"{100 * interval.high:.2f}, about these questions (hbayes@{N}, exact; posterior mean "
        f"{100 * posterior.mu:.2f}, sd {100 * posterior.sigma:.2f})"
    )
    assert message in notes
    assert "temperature 0.6, top_p 0.95; aime25_bayes, lm_eval 0.4.13, task 1.0, " in notes
    assert "\n" not in notes
    # what the hub shows beside the score is short
    short = (
        f"avg@{N}, {M} questions; 95% interval {100 * interval.low:.2f} to "
        f"{100 * interval.high:.2f} about these questions (hbayes@{N}); "
        "temperature 0.6, top_p 0.95"
    )
    assert read_back(result).notes == result.notes == short
    assert len(result.notes) <= 140


def test_a_dataset_that_is_no_registered_benchmark_is_warned_of(summary):
    def warned(of=summary, **settings):
        warnings = hub_result(of, HubSettings(**settings)).warnings
        return [warning for warning in warnings if "collect" in warning]

    assert "MathArena/aime_2026" in REGISTERED
    assert warned() == ["no leaderboard of the hub collects results of MathArena/aime_2025"]
    assert warned(dataset="MathArena/aime_2026") == []
    own = summarise(run("mine", TRIALS[:5], provenance=build(dataset="org/mine", revision="")))
    for message in (warned(own), warned(dataset="org/mine")):
        (warning,) = message
        assert warning.startswith("org/mine is none of the benchmarks known to collect results")
        assert "openai/gsm8k" in warning


def test_another_number_scale_scope_and_level():
    actual = hub_result(
        summarise(run(), IntervalSpec(0.9, method="hdi")),
        HubSettings(
            value="pass@4",
            scale="share",
            source_url="https://example.org/logs",
            source_name="Logs",
        ),
        scope="population",
    )
    entry = read_back(actual)
    right = TRIALS.sum(axis=1)
    from math import comb

    exact = np.mean([1 - comb(N - c, 4) / comb(N, 4) for c in right.tolist()])
    assert entry.value == round(exact, 4)
    assert "90% credible interval of the mean score 0." in actual.details
    assert f"about {scope_label('population')} (hbayes@8, hdi;" in actual.details
    assert entry.notes.startswith(f"pass@4 of {N} trials, {M} questions; 90% interval 0.")
    assert f"about {scope_label('population')} (hbayes@8)" in entry.notes
    assert (entry.source_url, entry.source_name) == ("https://example.org/logs", "Logs")
    posterior = hbayes_at_n(run().outcomes).mu
    assert read_back(hub_result(summarise(run()), HubSettings("hbayes@N"))).value == round(
        100 * posterior, 2
    )


def test_trials_that_differ_in_number_are_told():
    trials = [[0, 1, 1], [1] * 5, [0] * 4]
    result = hub_result(summarise(run(trials=trials)))
    assert result.details.startswith("avg@3 to 5 of 3 to 5 trials per question on 3 questions; ")
    assert result.notes.startswith("avg@3 to 5, 3 questions; ")
    # every question counts the same, whatever its trials
    assert result.value == round(100 * (2 / 3 + 1 + 0) / 3, 2)


def test_the_known_benchmarks_have_files_of_their_own():
    files = {item.file for item in KNOWN.values()}
    datasets = {item.dataset for item in KNOWN.values()}
    assert len(files) == len(datasets)
    for name, item in KNOWN.items():
        named = run(name, TRIALS[:2], provenance=build(dataset=""))
        result = hub_result(summarise(named, family_intervals=False))
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


@pytest.mark.parametrize("task", ["aime26_bayes", "aime25_bayes"])
def test_a_contest_that_no_leaderboard_collects_is_named(task):
    result = hub_result(summarise(run(task, TRIALS[:2], provenance=build(dataset=""))))
    sentence = f"no leaderboard of the hub collects results of {result.dataset_id}"
    assert (sentence in result.warnings) is (task == "aime25_bayes")


def test_a_known_name_on_another_dataset_is_another_benchmark():
    other = build(dataset="somebody/gsm8k-hard")
    result = hub_result(summarise(run("gsm8k", TRIALS[:2], provenance=other)))
    assert result.path == ".eval_results/gsm8k-own.yaml"
    assert (result.dataset_id, result.task_id) == ("somebody/gsm8k-hard", "default")
    assert any('"default"' in item for item in result.warnings)
    given = hub_result(
        summarise(run("gsm8k", TRIALS[:2], provenance=other)), HubSettings(task_id="hard")
    )
    assert given.task_id == "hard"
    assert not any('"default"' in item for item in given.warnings)


@pytest.mark.parametrize("name", NAMES)
def test_no_name_of_a_task_becomes_a_path_or_a_line(name):
    config = build(dataset="org/data", generation_kwargs={name: name, "temperature": 1})
    result = hub_result(summarise(run(name, TRIALS[:2], provenance=config)))
    folder, file = result.path.split("/")
    assert folder == ".eval_results"
    assert file.endswith(".yaml")
    assert set(file) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-.")
    assert read_back(result).notes == result.notes
    assert result.notes.isprintable()
    assert len(result.notes) <= 700


def test_what_was_not_pinned_is_not_given():
    for revision, message in ((None, "pinned no revision"), ("main", "pinned main")):
        actual = hub_result(
            summarise(run(trials=TRIALS[:2], provenance=build(revision=revision or "")))
        )
        assert actual.dataset_revision is None
        assert "revision" not in actual.text
        assert any(message in item for item in actual.warnings)
    given = hub_result(summarise(run(trials=TRIALS[:2])), HubSettings(revision="a" * 40))
    assert given.dataset_revision == "a" * 40


def test_another_dataset_than_that_of_the_run_has_no_pinned_revision(summary):
    result = hub_result(summary, HubSettings(dataset="org/other"))
    assert result.dataset_revision is None
    (warning,) = (text for text in result.warnings if "revision" in text)
    assert warning.startswith(
        f"the run's data were MathArena/aime_2025 at revision {REVISION}, and --dataset names "
        "org/other"
    )
    assert (
        hub_result(summary, HubSettings(dataset="org/other", revision="b" * 40)).dataset_revision
        == "b" * 40
    )


def test_a_run_of_another_model_is_told(summary):
    assert not any(
        "is exported as" in item for item in hub_result(summary, model_id="org/model").warnings
    )
    message = hub_result(summary, model_id="org/other").warnings[-1]
    assert message == "the run was of org/model, and is exported as org/other"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"value": "pass@9"},
            r"`--value` must be a number of aime25_bayes \(pass@1, .*got 'pass@9'",
        ),
        ({"dataset": "../x"}, r"`--dataset` must name the hub's dataset of aime25_bayes, as org"),
        ({"revision": "main"}, r"`--revision` must be the hash of a commit .*got 'main'"),
        ({"scale": "points"}, r"`scale` must be \"percent\" or \"share\"; got 'points'"),
    ],
)
def test_wrong_arguments_end_in_a_sentence(summary, arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        hub_result(summary, HubSettings(**arguments))


def test_a_dataset_that_nobody_knows_must_be_named():
    nowhere = summarise(run("sums", TRIALS[:2], provenance=build(dataset="")))
    with pytest.raises(InvalidInputError, match=r"`--dataset` must name the hub's dataset of sums"):
        hub_result(nowhere)
    assert hub_result(nowhere, HubSettings(dataset="org/sums")).dataset_id == "org/sums"


def test_scores_that_are_no_shares_are_refused():
    points = TaskRun.from_trials(
        "m", "aime25_bayes", [[0, 2], [1, 1]], ["p", "q"], (0.0, 1.0, 5.0), provenance=build()
    )
    with pytest.raises(InvalidInputError, match=r"scores between 0 and 1.*0 to 5"):
        hub_result(summarise(points, IntervalSpec(method="normal")))


def test_an_older_library_is_told_which_is_needed(summary, monkeypatch):
    old = types.ModuleType("huggingface_hub")
    old.__version__ = "1.3.7"
    monkeypatch.setitem(sys.modules, "huggingface_hub", old)
    with pytest.raises(
        LmEvalBayesError, match=r"huggingface_hub 1\.4 or newer.*installed is 1\.3\.7"
    ):
        hub_result(summary)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(LmEvalBayesError, match=r"huggingface_hub 1\.4 or newer.*none is installed"):
        hub_result(summary)


# -- the pull request ----------------------------------------------------------------------------


@pytest.fixture
def hub(monkeypatch):
    """A hub on loopback, and nothing in the environment that leads elsewhere."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    # connections of a session that was opened under other settings
    close = getattr(hub_library, "close_session", lambda: None)
    close()
    with fake_hub.serving() as (server, address):
        monkeypatch.setenv("HF_ENDPOINT", address)
        monkeypatch.setenv("HF_TOKEN", fake_hub.TOKEN)
        yield server
        close()


@pytest.fixture(scope="module")
def results(summary):
    gsm8k = summarise(
        run("gsm8k", TRIALS[:5], provenance=build(dataset="openai/gsm8k", revision=""))
    )
    return [hub_result(summary), hub_result(gsm8k)]


def test_one_pull_request_with_all_files(hub, results):
    address = open_pull_request(results, fake_hub.MODEL)
    assert address == f"{os.environ['HF_ENDPOINT']}/org/model/discussions/7"
    ((query, lines),) = hub.commits
    assert query == {"create_pr": ["1"]}
    assert hub.files_sent() == {item.path: item.text for item in results}
    (header,) = (line["value"] for line in lines if line["key"] == "header")
    assert header["summary"] == "Evaluation results: aime_2025.yaml, gsm8k.yaml"
    assert results[0].details in header["description"]


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("whoami", 401, "the token was not checked: .* answered 401: the token is not valid"),
        ("whoami", 500, "the token was not checked: .* answered 500: out of order"),
        (
            "discussions",
            403,
            "org/model was not checked: .* answered 403: the token may not",
        ),
        ("discussions", 404, "org/model was not checked: .* answered 404: there is no such"),
        ("commit/main", 403, "the pull request to org/model was not opened: .* answered 403"),
        ("commit/main", 400, "the pull request to org/model was not opened: .* answered 400"),
    ],
)
def test_what_the_hub_refuses_is_one_sentence(hub, results, path, status, message):
    hub.failing[path] = (status, '{"error": "out of order\\nsecond \\u001b[31mline"}')
    with pytest.raises(LmEvalBayesError, match=message) as caught:
        open_pull_request(results, fake_hub.MODEL)
    assert str(caught.value).isprintable()
    assert fake_hub.TOKEN not in str(caught.value)
    assert hub.commits == []


def test_an_answer_that_is_no_hubs_is_told(hub, results):
    hub.failing["discussions"] = (200, "<html>a login page</html>")
    with pytest.raises(LmEvalBayesError, match="gave an unexpected response"):
        open_pull_request(results, fake_hub.MODEL)


def test_no_network_is_one_sentence(hub, results):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(LmEvalBayesError, match=rf"{nobody} cannot be reached \(.*\)"):
        open_pull_request(results, fake_hub.MODEL, endpoint=nobody)
    assert hub.requests == []


def test_offline_mode_is_told(hub, results, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(LmEvalBayesError, match="HF_HUB_OFFLINE is set, so"):
        open_pull_request(results, fake_hub.MODEL)
    assert hub.requests == []


def test_nothing_is_sent_without_a_token(hub, results, monkeypatch, tmp_path):
    from huggingface_hub import constants

    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    with pytest.raises(
        LmEvalBayesError, match="there is no token for the hub, so nothing was sent"
    ):
        open_pull_request(results, fake_hub.MODEL)
    assert hub.requests == []


def test_what_is_there_is_not_sent_twice(hub, results):
    hub.files.add(".eval_results/gsm8k.yaml")
    with pytest.raises(LmEvalBayesError, match=r"org/model has \.eval_results/gsm8k\.yaml already"):
        open_pull_request(results, fake_hub.MODEL)
    assert hub.commits == []
    assert open_pull_request(results, fake_hub.MODEL, overwrite=True)
    hub.open_pull_requests.append("Evaluation results: aime_2025.yaml, gsm8k.yaml")
    with pytest.raises(LmEvalBayesError, match="pull request 7 of org/model is open"):
        open_pull_request(results, fake_hub.MODEL, overwrite=True)
    assert len(hub.commits) == 1


def test_open_requests_are_found_by_what_they_hold(hub, results):
    first, second = results
    hub.open_pull_requests += ["Add my scores", "Fix a typo"]
    hub.contents = {
        "main": {".eval_results/old.yaml": second.text},
        "refs/pr/7": {".eval_results/mine.yaml": first.text},
        "refs/pr/8": {".eval_results/old.yaml": second.text, ".eval_results/x.yaml": "- !!python"},
    }
    for overwrite in (False, True):
        message = r"request 7 of org/model is open and has the same result on MathArena/aime_2025"
        with pytest.raises(LmEvalBayesError, match=message):
            open_pull_request(results, fake_hub.MODEL, overwrite=overwrite)
    # another value on the same benchmark
    assert f"value: {first.value}" in first.text
    other = first.text.replace(f"value: {first.value}", "value: 12.5")
    hub.contents["refs/pr/7"] = {".eval_results/mine.yaml": other}
    message = r"has a result on MathArena/aime_2025, 12\.5 \(\.eval_results/mine\.yaml\)"
    with pytest.raises(LmEvalBayesError, match=message):
        open_pull_request(results, fake_hub.MODEL)
    assert hub.commits == []
    # what a request leaves as it is on main, and what is no result, is not of that request
    assert open_pull_request(results, fake_hub.MODEL, overwrite=True)
    hub.contents["refs/pr/7"] = {".eval_results/mine.yaml": "- [1"}
    assert open_pull_request(results, fake_hub.MODEL)
    assert len(hub.commits) == 2
