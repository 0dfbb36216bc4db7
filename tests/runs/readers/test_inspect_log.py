"""Logs of inspect_ai 0.3.285, which `data/inspect_ai/make.py` made.

The expected means are those that inspect_ai printed; outcomes were counted by hand from its list of
samples.
"""

import json
import shutil
import zipfile

import numpy as np
import pytest
from _support.tool_logs import (
    DATA,
    all_commands,
    nested,
    outcomes_of,
    replaced_by_nested,
    same_as_table,
    summary,
)

from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.readers import inspect_log
from lm_eval_bayes.runs.readers.formats import recognise

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
    return json.loads((LOGS / "weak.json").read_text(encoding="utf-8"))


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


def test_the_numbers_are_those_of_a_table(tmp_path):
    same_as_table(tmp_path, MATCH, WEAK, STRONG)
    same_as_table(tmp_path, CLOSENESS, WEAK, "--metric", "closeness")


def test_every_command_reads_a_folder(tmp_path):
    shutil.copy(WEAK, tmp_path)
    shutil.copy(STRONG, tmp_path)
    all_commands(tmp_path, WEAK, STRONG)
    assert recognise(tmp_path)[0].name == "inspect_ai"
    assert outcomes_of(tmp_path) == outcomes_of(STRONG) | outcomes_of(WEAK)


def test_errors_limits_and_scorers_are_told():
    _, said = summary(WEAK)
    assert "scorer match was counted; --metric chooses among match, closeness, style/short" in said
    assert "1 trial ended in an error, without a score, and did not count" in said
    assert "without a score left out" not in said  # it is the same trial
    assert "1 trial ended by a limit, and counted by the score" in said


def test_a_sample_with_an_error_is_wrong_where_asked_for():
    (run,) = read_runs([STRONG], unscored="wrong").runs
    assert run.trials[run.question_ids.index("c")].tolist() == [0, 0, 0]
    assert "1 trial without a score counted as wrong (--unscored wrong)" in run.notes
    assert not [note for note in run.notes if "did not count" in note]
    with pytest.raises(InvalidInputError, match="`unscored` must be left-out or wrong"):
        read_runs([STRONG], unscored="skip")


def test_an_unknown_scorer_is_refused():
    with pytest.raises(InvalidInputError, match=r"a scorer of weak\.eval, match, closeness, style"):
        read_runs([WEAK], metric="accuracy")


def test_tokens_time_settings_and_versions_are_read():
    (run,) = read_runs([WEAK]).runs
    assert run.tokens == 13  # one digit for each answer; one question was never asked
    assert run.provenance.generation_kwargs == {"temperature": 0.6, "max_tokens": 64}
    assert run.provenance.versions == {"inspect_ai": "0.3.285", "task": "2"}
    assert (run.provenance.dataset, run.provenance.n_questions) == ("letters", 5)
    assert run.questions[0] == "Question a ?"


def test_a_field_of_the_metadata_names_clusters():
    (run,) = read_runs([WEAK], cluster="contest").runs
    assert run.clusters == ("I", "I", "II", "II", "II")
    with pytest.raises(
        InvalidInputError,
        match=r"a field of the samples' metadata in weak.eval, contest; got .topic",
    ):
        read_runs([WEAK], cluster="topic")


def test_a_copy_of_a_log_is_no_further_trials():
    with pytest.raises(InvalidInputError, match="14 of 14 trials"):
        read_runs([WEAK, LOGS / "weak.json"])
    (run,) = read_runs([WEAK, LOGS / "weak.json"], dedupe=True).runs
    assert run.n_trials == 14
    saved = read_runs([LOGS])
    assert [run.n_trials for run in saved.runs] == [14, 14]
    assert "weak.json was left out: weak.eval is a copy, or a retry" in saved.warnings[0]


def test_another_run_of_a_model_adds_trials(tmp_path, content):
    content["eval"]["task_id"] = "another"
    other = tmp_path / "log.json"
    other.write_text(json.dumps(content))
    (run,) = read_runs([WEAK, other]).runs
    assert run.n_trials == 28


def test_other_settings_are_another_model(tmp_path, content):
    content["eval"]["model_generate_config"]["temperature"] = 1.0
    content["eval"]["task_id"] = "another"
    other = tmp_path / "log.json"
    other.write_text(json.dumps(content))
    assert read_runs([WEAK, other]).models == (
        "mockllm/weak (temperature=0.6)",
        "mockllm/weak (temperature=1.0)",
    )


def test_runs_with_other_arguments_of_the_task_are_named_by_them(tmp_path, content):
    secret, long = "sk-abcdefghijklmnopqrstuvwxyz", "a long prompt of several words"
    for number, (mode, more) in enumerate([("plain", 1), ("hinted", 2), ("hinted", long)]):
        content["eval"]["task_id"] = f"run {number}"
        content["eval"]["task_args"] = {"mode": mode, "n": more, "api_key": f"{secret}{number}"}
        (tmp_path / f"{number}.json").write_text(json.dumps(content))
    saved = read_runs([tmp_path])
    printed = " ".join([*saved.models, *saved.warnings])
    assert secret not in printed
    assert long not in printed
    assert saved.models[0].startswith("mockllm/weak (mode=plain, n=1, ")
    assert saved.models[2].startswith("mockllm/weak (mode=hinted, n=hash ")
    assert "different settings (mode: plain, hinted; n: 1, 2, hash " in saved.warnings[-1]


def test_a_temperature_that_one_run_lacks_is_told(tmp_path, content):
    content["eval"]["task_id"] = "another"
    content["eval"]["model_generate_config"] = {}
    content["plan"]["config"] = {}
    other = tmp_path / "log.json"
    other.write_text(json.dumps(content))
    saved = read_runs([WEAK, other])
    (warning,) = saved.warnings
    assert "(temperature: 0.6, unset" in warning


def test_several_runs_of_a_folder_are_merged_with_a_note(tmp_path, content):
    for name in ("a", "b"):
        content["eval"]["task_id"] = name
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    (run,) = read_runs([tmp_path]).runs
    assert run.n_trials == 28
    assert "the trials of 2 files were merged: a.json, b.json" in run.notes


def test_runs_of_several_folders_are_merged_with_the_same_note(tmp_path, content):
    for name in ("a", "b"):
        content["eval"]["task_id"] = name
        (tmp_path / name).mkdir()
        (tmp_path / name / "log.json").write_text(json.dumps(content))
    first, second = tmp_path / "a", tmp_path / "b"
    (run,) = read_runs([first, second]).runs
    assert run.n_trials == 28
    files = f"{first / 'log.json'}, {second / 'log.json'}"
    assert f"the trials of 2 files were merged: {files}" in run.notes
    for run in read_runs([first, second], merge=False).runs:
        assert not [note for note in run.notes if "were merged" in note]


def test_the_newest_log_of_a_retried_task_counts(tmp_path, content):
    (tmp_path / "b.json").write_text(json.dumps(content))
    content["eval"]["created"] = "2020-01-01T00:00:00+00:00"
    content["status"], content["samples"] = "error", content["samples"][:4]
    (tmp_path / "a.json").write_text(json.dumps(content))
    saved = read_runs([tmp_path])
    assert saved.runs[0].n_trials == 14
    assert "a.json was left out: b.json is a copy, or a retry" in saved.warnings[0]
    saved = read_runs([tmp_path / "a.json"])
    assert saved.runs[0].n_trials == 4
    assert saved.warnings == (
        f"{tmp_path / 'a.json'} has the status error and holds 4 of 15 samples of its header, "
        "epochs counted: the samples that it holds count",
    )


def test_a_log_with_fewer_samples_than_its_header_is_warned_of(tmp_path, content):
    file = tmp_path / "a.json"
    file.write_text(json.dumps(content))
    assert read_runs([file]).warnings == ()
    content["samples"] = content["samples"][:-2]
    warning = f"{file} holds 13 of 15 samples of its header, epochs counted: the samples that it"
    for results in (content["results"], None):  # by its total, or by its ids and epochs
        file.write_text(json.dumps({**content, "results": results}))
        assert read_runs([file]).warnings == (f"{warning} holds count",)


def test_a_log_that_did_not_end_is_read_from_its_journal(tmp_path):
    parts = entries(WEAK)
    for name in ("summaries.json", "reductions.json", "header.json"):
        del parts[name]
    log = write_eval(tmp_path / "weak.eval", parts)
    assert outcomes_of(log) == outcomes_of(WEAK)
    assert "does not say how it ended" in read_runs([log]).warnings[0]
    without = {name: part for name, part in parts.items() if "summaries" not in name}
    assert outcomes_of(write_eval(log, without)) == outcomes_of(WEAK)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_earlier_compressions_are_read(tmp_path, compression):
    log = write_eval(tmp_path / "weak.eval", entries(WEAK), compression)
    assert outcomes_of(log) == outcomes_of(WEAK)


def test_the_score_of_early_logs_is_read(tmp_path, content):
    for sample in content["samples"]:
        sample["score"] = sample.pop("scores").get("match")
    log = tmp_path / "log.json"
    log.write_text(json.dumps(content))
    assert outcomes_of(log) == outcomes_of(WEAK)


def test_words_that_are_no_scores_count_as_by_the_tool(tmp_path, content):
    for sample, value in zip(content["samples"], ("yes", "no", "0.25", "bad", "N"), strict=False):
        sample["scores"]["match"]["value"] = value
    content["samples"] = content["samples"][:5]
    log = tmp_path / "log.json"
    log.write_text(json.dumps(content))
    ((_, of_model),) = outcomes_of(log).items()
    assert of_model == {"a": [1.0], "b": [0.0], "c": [0.25], "d": [0.0], "e": [0.0]}
    (run,) = read_runs([log]).runs
    assert "1 word in place of a score of match counted as 0, as in inspect_ai" in run.notes


@pytest.mark.parametrize(
    ("metric", "value", "shown"),
    [
        ("match", [1], "[1]"),
        ("match", {"a": 1}, '{"a": 1}'),
        ("match", float("inf"), "inf (infinite, or beyond the largest float, 1.8e308)"),
        ("match", 10**400, "1000"),
        ("style/short", 1, "1"),
        ("style/short", {"short": [1]}, "[1]"),
    ],
)
def test_a_score_that_is_no_number_is_refused(tmp_path, content, metric, value, shown):
    sample = content["samples"][1]
    sample["scores"][metric.partition("/")[0]]["value"] = value
    log = tmp_path / "log.json"
    log.write_text(json.dumps(content))
    with pytest.raises(InvalidInputError) as raised:
        read_runs([log], metric=metric)
    message = str(raised.value)
    assert message.startswith(f"`RUN` must have finite numbers as scores ({log}); got {shown}")
    assert f"as {metric} of sample {sample['id']}" in message


@pytest.mark.parametrize("metric", ["match", "style/short"])
def test_nan_is_no_score_as_in_unscored_samples_of_the_tool(tmp_path, content, metric):
    """`Score.unscored()` writes NaN, also where other samples have scores of several parts."""
    content["samples"][1]["scores"][metric.partition("/")[0]]["value"] = float("nan")
    log = tmp_path / "log.json"
    log.write_text(json.dumps(content))
    (run,) = read_runs([log], metric=metric).runs
    assert run.n_trials == 13
    assert "1 trial ended in an error, without a score" in "".join(run.notes)
    assert "1 other trial without a score left out" in run.notes


def test_true_and_false_are_scores(tmp_path, content):
    values = (True, False, False, True, False)
    content["samples"] = content["samples"][: len(values)]
    for sample, value in zip(content["samples"], values, strict=True):
        sample["scores"] = {"match": {"value": value}, "both": {"value": {"a": value}}}
    log = tmp_path / "log.json"
    log.write_text(json.dumps(content))
    for metric in ("match", "both/a"):
        ((_, of_model),) = outcomes_of(log, metric=metric).items()
        assert [scores[0] for scores in of_model.values()] == list(map(float, values))


def test_scores_beyond_one_need_bounds(tmp_path, content):
    for sample in content["samples"]:
        sample["scores"] = {"grade": {"value": 7}}
    log = tmp_path / "log.json"
    log.write_text(json.dumps(content))
    with pytest.raises(InvalidInputError, match="--bounds"):
        read_runs([log])
    assert read_runs([log], bounds=(0, 10)).runs[0].outcomes.scores[0].tolist() == [7, 7, 7]


def test_a_log_without_scores_is_refused(tmp_path, content):
    for sample in content["samples"]:
        sample["scores"] = None
    log = tmp_path / "log.json"
    log.write_text(json.dumps(content))
    with pytest.raises(InvalidInputError, match="have scores of samples"):
        read_runs([log])


def test_a_task_that_is_not_in_the_log_is_refused():
    with pytest.raises(InvalidInputError, match="hold task sums; there is letters"):
        read_runs([WEAK], task="sums")


def test_an_entry_that_expands_beyond_what_it_declares_is_refused(tmp_path):
    raw = WEAK.read_bytes()
    with zipfile.ZipFile(WEAK) as archive:
        info = archive.getinfo("summaries.json")
    declared = info.file_size.to_bytes(4, "little")
    log = tmp_path / "weak.eval"
    log.write_bytes(raw.replace(declared, (100).to_bytes(4, "little")))
    with pytest.raises(InvalidInputError, match=r"summaries\.json is cut off or broken"):
        read_runs([log])
    log.write_bytes(raw.replace(declared, (2**32 - 2).to_bytes(4, "little")))
    with pytest.raises(InvalidInputError, match="4,294,967,294 bytes in summaries"):
        read_runs([log])


def test_deep_nesting_is_read_or_refused(tmp_path, content):
    log = tmp_path / "log.json"
    content["samples"] = content["samples"][:6]
    content["eval"]["task_args"] = {"shots": 5}
    log.write_text(json.dumps(content))
    replaced_by_nested(log, '{"shots": 5}')

    header = json.dumps(content).partition('"samples"')[0]
    log.write_text(f'{header} "samples": {nested()}}}')
    with pytest.raises(InvalidInputError, match="nested hundreds deep"):
        read_runs([log])
