"""Logs of inspect_ai 0.3.285, which `data/inspect_ai/make.py` made.

The expected means are those that inspect_ai printed; outcomes were counted by hand from its list of
samples.
"""

import json
import zipfile

import numpy as np
import pytest
from _support.errors import refused
from _support.tool_logs import DATA, content_of, counted_by_hand, outcomes_of, written

from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.readers import inspect_log

LOGS = DATA / "inspect_ai"
WEAK, STRONG = LOGS / "weak.eval", LOGS / "strong.eval"

MATCH = {
    "mockllm/weak": {
        "a": [1, 0, 1],
        "b": [1, 1, 1],
        "c": [0, None, 0],
        "d": [1, 0, 1],
        "e": [1, 1, 0],
    },
    "mockllm/strong": {
        "a": [1, 1, 1],
        "b": [1, 1, 0],
        "c": [0, None, 0],
        "d": [1, 1, 1],
        "e": [1, 1, 0],
    },
}
CLOSENESS = {
    "mockllm/weak": {
        "a": [1, 0.5, 1],
        "b": [1, 1, 1],
        "c": [0.5, None, 0.5],
        "d": [0, 0, 0],
        "e": [1, 1, None],
    }
}


@pytest.fixture
def content():
    return content_of(LOGS / "weak.json")


def entries(file):
    """The entries of a log, decompressed by the reader."""
    with zipfile.ZipFile(file) as archive:
        return {
            name: json.loads(inspect_log._entry(file, archive, name)) for name in archive.namelist()
        }


def write_eval(file, parts, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, part in parts.items():
            archive.writestr(name, json.dumps(part))
    return file


def test_the_outcomes_were_counted_by_hand():
    assert outcomes_of(LOGS) == counted_by_hand(MATCH)
    assert outcomes_of(WEAK, metric="closeness") == counted_by_hand(CLOSENESS)


@pytest.mark.parametrize("name", ["weak.eval", "weak.json"])
@pytest.mark.parametrize(
    ("metric", "mean"),
    [
        ("match", 0.5999999999999999),
        ("closeness", 0.6666666666666667),
        ("style/short", 1.0),
        ("style/digits", 0.4666666666666667),
    ],
)
def test_the_mean_is_that_of_inspect_ai(name, metric, mean):
    (run,) = read_runs([LOGS / name], metric=metric).runs
    assert (run.model, run.task, run.metric) == ("mockllm/weak", "letters", metric)
    ((_, of_model),) = outcomes_of(LOGS / name, metric=metric).items()
    assert np.mean([np.mean(scores) for scores in of_model.values()]) == pytest.approx(mean)


def test_a_sample_with_an_error_is_wrong_where_asked_for():
    (run,) = read_runs([STRONG], unscored="wrong").runs
    assert run.trials[run.question_ids.index("c")].tolist() == [0, 0, 0]
    assert any("1 trial without a score" in note for note in run.notes)
    with refused("unscored", "choice", "skip"):
        read_runs([STRONG], unscored="skip")


def test_tokens_time_settings_and_versions_are_read():
    (run,) = read_runs([WEAK]).runs
    assert run.tokens == 13  # one digit for each answer; one question was never asked
    assert run.provenance.generation_kwargs == {"temperature": 0.6, "max_tokens": 64}
    assert run.provenance.versions == {"inspect_ai": "0.3.285", "task": "2"}
    assert (run.provenance.dataset, run.provenance.n_questions) == ("letters", 5)
    assert run.questions[0] == "Question a ?"


def test_a_copy_of_a_log_is_no_further_trials():
    saved = read_runs([LOGS])
    assert [run.n_trials for run in saved.runs] == [14, 14]
    assert any(note.startswith("weak.json was left out") for note in saved.runs[1].notes)


def test_runs_with_other_arguments_of_the_task_are_named_by_them(tmp_path, content):
    secret, long = "sk-abcdefghijklmnopqrstuvwxyz", "a long prompt of several words"
    for number, (mode, more) in enumerate([("plain", 1), ("hinted", 2), ("hinted", long)]):
        content["eval"]["task_id"] = f"run {number}"
        content["eval"]["task_args"] = {"mode": mode, "n": more, "api_key": f"{secret}{number}"}
        written(tmp_path, content, f"{number}.json")
    saved = read_runs([tmp_path])
    printed = " ".join([*saved.models, *saved.warnings])
    assert secret not in printed
    assert long not in printed
    assert saved.models[0].startswith("mockllm/weak (mode=plain, n=1, ")
    assert saved.models[2].startswith("mockllm/weak (mode=hinted, n=hash ")


def test_the_newest_log_of_a_retried_task_counts(tmp_path, content):
    written(tmp_path, content, "b.json")
    content["eval"]["created"] = "2020-01-01T00:00:00+00:00"
    content["status"], content["samples"] = "error", content["samples"][:4]
    written(tmp_path, content, "a.json")
    saved = read_runs([tmp_path])
    assert saved.runs[0].n_trials == 14
    assert any(note.startswith("a.json was left out") for note in saved.runs[0].notes)
    saved = read_runs([tmp_path / "a.json"])
    assert saved.runs[0].n_trials == 4
    assert "4 of 15" in saved.warnings[0]


def test_a_log_with_fewer_samples_than_its_header_is_warned_of(tmp_path, content):
    file = tmp_path / "a.json"
    file.write_text(json.dumps(content))
    assert read_runs([file]).warnings == ()
    content["samples"] = content["samples"][:-2]
    file.write_text(json.dumps(content))
    (warning,) = read_runs([file]).warnings
    assert "13 of 15" in warning


def test_a_log_that_did_not_end_is_read_from_its_journal(tmp_path):
    parts = entries(WEAK)
    for name in ("summaries.json", "reductions.json", "header.json"):
        del parts[name]
    log = write_eval(tmp_path / "weak.eval", parts)
    assert outcomes_of(log) == outcomes_of(WEAK)
    assert len(read_runs([log]).warnings) == 1
    without = {name: part for name, part in parts.items() if "summaries" not in name}
    with refused("RUN", "missing"):
        read_runs([write_eval(log, without)])


def test_the_score_of_early_logs_is_read(tmp_path, content):
    for sample in content["samples"]:
        sample["score"] = sample.pop("scores").get("match")
    log = written(tmp_path, content)
    assert outcomes_of(log) == outcomes_of(WEAK)


def test_words_that_are_no_scores_count_as_by_the_tool(tmp_path, content):
    for sample, value in zip(content["samples"], ("yes", "no", "0.25", "bad", "N"), strict=False):
        sample["scores"]["match"]["value"] = value
    content["samples"] = content["samples"][:5]
    log = written(tmp_path, content)
    ((_, of_model),) = outcomes_of(log).items()
    assert of_model == {"a": [1.0], "b": [0.0], "c": [0.25], "d": [0.0], "e": [0.0]}
    (run,) = read_runs([log]).runs
    assert any("1 trial ended with the word bad in" in note for note in run.notes)


@pytest.mark.parametrize(
    ("metric", "value", "rule"),
    [
        ("match", [1], "format"),
        ("match", float("inf"), "range"),
        ("match", 10**400, "range"),
        ("style/short", 1, "format"),
    ],
)
def test_a_score_that_is_no_number_is_refused(tmp_path, content, metric, value, rule):
    content["samples"][1]["scores"][metric.partition("/")[0]]["value"] = value
    log = written(tmp_path, content)
    with refused("RUN", rule):
        read_runs([log], metric=metric)


@pytest.mark.parametrize("metric", ["match", "style/short"])
def test_nan_is_no_score_as_in_unscored_samples_of_the_tool(tmp_path, content, metric):
    """`Score.unscored()` writes NaN, also where other samples have scores of several parts."""
    content["samples"][1]["scores"][metric.partition("/")[0]]["value"] = float("nan")
    log = written(tmp_path, content)
    (run,) = read_runs([log], metric=metric).runs
    assert run.n_trials == 13


def test_a_log_without_scores_is_refused(tmp_path, content):
    for sample in content["samples"]:
        sample["scores"] = None
    log = written(tmp_path, content)
    with refused("RUN", "missing"):
        read_runs([log])


def test_an_entry_that_expands_beyond_what_it_declares_is_refused(tmp_path):
    raw = WEAK.read_bytes()
    with zipfile.ZipFile(WEAK) as archive:
        info = archive.getinfo("summaries.json")
    declared = info.file_size.to_bytes(4, "little")
    log = tmp_path / "weak.eval"
    log.write_bytes(raw.replace(declared, (100).to_bytes(4, "little")))
    with refused("RUN", "damaged"):
        read_runs([log])
    log.write_bytes(raw.replace(declared, (2**32 - 2).to_bytes(4, "little")))
    with refused("RUN", "damaged", "4,294,967,294 bytes in summaries.json"):
        read_runs([log])
