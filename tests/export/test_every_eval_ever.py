"""Records of Every Eval Ever.

The schema itself is not part of this repository: `tests/packaging` validates records against it.
What the schema asks for by name is checked here by hand.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from _support.errors import refused
from _support.hostile import NAMES
from _support.saved_runs import question, write_run

from lm_eval_bayes.analysis.summary import summarise
from lm_eval_bayes.export.every_eval_ever import Sender, submission
from lm_eval_bayes.export.every_eval_instances import (
    InstancesFile,
    check_instances,
    instances,
)
from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.task_run import SECONDS, TOKENS, Provenance, TaskRun
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.intervals import IntervalSpec
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.uniform_prior import bayes_at_n

M, N = 12, 6
TRIALS = np.random.default_rng(60).integers(0, 2, (M, N))
IDS = [f"q{i}" for i in range(M)]
SECRETS = {"api_key": "sk-secret", "base_url": "https://secret.example/v1", "token": "hf_secret"}
LOCAL = {"pretrained": "/home/secret/model", "tokenizer": "/home/secret/tokenizer", "dtype": "bf16"}


def run(trials=TRIALS, task="aime25_bayes", **more):
    about = {
        "backend": "hf-signals",
        "model_args": {**SECRETS, **LOCAL, "revision": "/home/secret/checkpoint"},
        "generation_kwargs": {
            "temperature": 0.6,
            "top_k": "20",
            "max_gen_toks": 512,
            "until": ["</s>"],
            "do_sample": True,
        },
        "date": 1_769_853_600.9,
        "versions": {"lm_eval": "0.4.13", "task": "1.0", "transformers": "5.1.0"},
        "dataset": "MathArena/aime_2025",
        "revision": "c94da77eb22bbd6439e62a323bec18493a421302",
        "config": {"test_split": "train", "doc_to_text": "{{ problem }}", "num_fewshot": 0},
    }
    more.setdefault("provenance", Provenance(**about))
    more.setdefault("sources", ("/home/secret/samples_x.jsonl",))
    return TaskRun.from_trials("m", task, trials, IDS[: len(trials)], **more)


@pytest.fixture(scope="module")
def summary():
    return summarise(run(filter="boxed"), IntervalSpec(0.9))


@pytest.fixture(scope="module")
def result(summary):
    return submission(
        summary,
        model_id="org/model",
        sender=Sender("An Institute", "third_party", availability="open_weights"),
    )


def results(record):
    return {item["metric_config"]["metric_name"]: item for item in record["evaluation_results"]}


# -- the aggregate record ------------------------------------------------------------------------


def test_what_the_record_says_of_the_run(result):
    record = dict(result.record)
    del record["evaluation_results"]
    assert record == {
        "schema_version": "0.3.0",
        "evaluation_id": "aime25_bayes/org/model/1769853600",
        "retrieved_timestamp": record["retrieved_timestamp"],
        "evaluation_timestamp": "1769853600",
        "source_metadata": {
            "source_name": "lm-evaluation-harness",
            "source_type": "evaluation_run",
            "source_organization_name": "An Institute",
            "evaluator_relationship": "third_party",
        },
        "eval_library": {
            "name": "lm_eval",
            "version": "0.4.13",
            "additional_details": {
                "task": "1.0",
                "transformers": "5.1.0",
                "lm_eval_bayes": record["eval_library"]["additional_details"]["lm_eval_bayes"],
            },
        },
        "model_info": {
            "name": "org/model",
            "id": "org/model",
            "developer": "org",
            "inference_engine": {"name": "transformers", "version": "5.1.0"},
            "additional_details": {
                "deployment_type": "self_deployed",
                "model_availability": "open_weights",
                "harness_backend": "hf-signals",
                "dtype": "bf16",
            },
        },
    }


def test_neither_paths_nor_keys_go_out(result, summary):
    text = result.to_json() + "".join(map(json.dumps, instances(summary, result)))
    assert "secret" not in text
    assert "/home" not in text


def test_one_result_a_metric_with_its_uncertainty(result):
    record = results(result.record)
    outcomes = run().outcomes
    expected = {
        f"hbayes@{N}": hbayes_at_n(outcomes),
        f"hbayes@{N}_population": hbayes_at_n(outcomes, "population"),
        f"bayes@{N}": bayes_at_n(outcomes),
    }
    for name, posterior in expected.items():
        about, interval = record[name]["score_details"], posterior.interval(0.9, "exact")
        uncertainty = about["uncertainty"]
        assert about["score"] == posterior.mu
        assert uncertainty["standard_error"]["value"] == posterior.sigma
        assert uncertainty["standard_error"]["method"].startswith("posterior standard deviation")
        between = uncertainty["confidence_interval"]
        assert (between["lower"], between["upper"]) == (interval.low, interval.high)
        assert between["confidence_level"] == 0.9
        assert between["method"].startswith("Bayesian credible interval (exact)")
        assert uncertainty["num_samples"] == M
        assert about["details"] == {"trials": str(M * N), "trials_per_question": str(N)}
    assert (
        "the population of questions"
        in record[f"hbayes@{N}_population"]["score_details"]["uncertainty"]["confidence_interval"][
            "method"
        ]
    )


def test_the_estimators_are_those_of_the_summary(summary, result):
    record = results(result.record)
    for name, metric, parameters in (
        ("pass@2", "pass_at_k", {"k": 2, "n": N}),
        ("g-pass@4_0.5", "lm-eval-bayes.g_pass_at_k", {"k": 4, "n": N, "tau": 0.5}),
    ):
        assert record[name]["score_details"]["score"] == summary.rows[name]
        assert record[name]["metric_config"]["metric_parameters"] == parameters
        assert record[name]["metric_config"]["metric_id"] == metric
    average = record[f"avg@{N}"]["score_details"]
    assert average["score"] == pytest.approx(TRIALS.mean())
    # eq. 20 of Hariri et al.
    sigma = bayes_at_n(run().outcomes).sigma * (N + 2) / N
    assert average["uncertainty"]["standard_error"]["value"] == pytest.approx(sigma)


def test_what_every_result_says_of_questions_and_sampling(result):
    ids = set()
    for number, item in enumerate(result.record["evaluation_results"]):
        ids.add(item["evaluation_result_id"])
        assert item["evaluation_name"] == "aime25_bayes/boxed"
        assert item["source_data"] == {
            "dataset_name": "MathArena/aime_2025",
            "source_type": "hf_dataset",
            "hf_repo": "MathArena/aime_2025",
            "hf_split": "train",
            "samples_number": M,
            **({"sample_ids": IDS} if number == 0 else {}),
            "additional_details": {
                "questions": str(M),
                "revision": "c94da77eb22bbd6439e62a323bec18493a421302",
            },
        }
        config = item["generation_config"]
        assert config["generation_args"] == {
            "temperature": 0.6,
            "max_tokens": 512,
            "prompt_template": "{{ problem }}",
        }
        # a number that came as text is no number of the schema
        assert config["additional_details"]["top_k"] == "20"
        metric = item["metric_config"]
        assert (metric["min_score"], metric["max_score"]) == (0.0, 1.0)
        assert metric["lower_is_better"] is False
    assert len(ids) == len(result.record["evaluation_results"])
    assert f"avg@{N}:boxed" in ids


def test_rubrics_say_their_weights_and_their_range():
    trials = [[0, 2, 1, 2], [1, 1, 0, 2], [2, 2, 2, 2]]
    graded = TaskRun.from_trials("m", "essays", trials, IDS[:3], (0.0, 0.5, 2.0))
    record = submission(summarise(graded, IntervalSpec(method="normal")), model_id="o/m").record
    result = results(record)
    assert set(result) == {"hbayes@4", "hbayes@4_population", "bayes@4", "avg@4"}
    for item in result.values():
        metric = item["metric_config"]
        assert (metric["min_score"], metric["max_score"]) == (0.0, 2.0)
        assert metric["metric_unit"] == "points"
        assert item["score_details"]["details"]["category_weights"] == "0, 0.5, 2"
    assert record["eval_library"] == {
        "name": "unknown",
        "version": "unknown",
        "additional_details": record["eval_library"]["additional_details"],
    }
    assert result["avg@4"]["source_data"]["source_type"] == "other"


def test_a_record_of_part_of_a_task_says_so(summary):
    part = replace(summary.run, provenance=replace(summary.run.provenance, n_questions=M + 5))
    record = submission(summarise(part), model_id="org/model").record
    details = [item["source_data"]["additional_details"] for item in record["evaluation_results"]]
    assert {item["questions_of_the_task"] for item in details} == {str(M + 5)}
    assert {item["questions"] for item in details} == {str(M)}


# -- where it belongs ----------------------------------------------------------------------------


def test_the_name_of_the_file_is_the_runs_own(summary, result):
    again = submission(summary, model_id="org/model")
    assert again.path == result.path
    form = r"data/aime_2025/org/model/[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-"
    assert re.fullmatch(form + r"[0-9a-f]{12}\.json", result.path)
    flipped = TRIALS.copy()
    flipped[0, 0] ^= 1
    others = {
        submission(summary, model_id="org/other").name,
        submission(summarise(run(flipped, filter="boxed")), model_id="org/model").name,
        submission(summarise(run(TRIALS[:, ::-1], filter="boxed")), model_id="org/model").name,
    }
    assert result.name not in others
    assert len(others) == 3


@pytest.mark.parametrize("name", NAMES)
def test_no_name_becomes_a_path(name):
    few = TaskRun.from_trials(name, name, [[0, 1]], [name])
    record = submission(
        summarise(few, IntervalSpec(method="normal")),
        collection=name,
        sender=Sender(developer=name),
    )
    folders = record.folder.split("/")
    assert len(folders) == 4
    assert folders[0] == "data"
    for part in folders[1:]:
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", part)
        assert ".." not in part
    if record.model_id != name:
        assert record.model_id == "/".join(folders[2:])
    assert json.loads(record.to_json())["evaluation_id"].isprintable()


def test_who_made_the_model_must_be_known():
    flat = summarise(TaskRun.from_trials("coin", "sums", [[0, 1]], ["p"]))
    with refused("--model-id", "missing", "no name"):
        submission(flat)
    with refused("--model-id", "format", "a/b/c"):
        submission(flat, model_id="a/b/c")
    named = submission(flat, sender=Sender(developer="The Mint"))
    assert named.record["model_info"]["developer"] == "The Mint"
    hub = Provenance(backend="vllm", model_args={"pretrained": "org/model"})
    named_run = TaskRun.from_trials("model", "sums", [[0, 1]], ["p"], provenance=hub)
    assert submission(summarise(named_run)).model_id == "org/model"


# -- the instance-level records ------------------------------------------------------------------


def test_a_record_for_every_trial(result):
    seeds = tuple(tuple(100 * q + i for i in range(N)) for q in range(M))
    answers = tuple(tuple("7" if r else None for r in row) for row in TRIALS)
    measured = {
        TOKENS: tuple(np.full(N, 30.0) for _ in range(M)),
        "prompt_tokens": tuple(np.array([11.0] * (N - 1) + [math.nan]) for _ in range(M)),
        SECONDS: tuple(np.full(N, 0.25) for _ in range(M)),
    }
    logged = summarise(run(seeds=seeds, answers=answers, measured=measured))
    record = submission(logged, model_id="org/model")
    rows = list(instances(logged, record))
    assert len(rows) == M * N
    scores = np.array([row["evaluation"]["score"] for row in rows]).reshape(M, N)
    assert (scores == TRIALS).all()
    assert [row["metadata"]["trial"] for row in rows] == [str(i) for i in range(N)] * M
    assert [row["metadata"]["seed"] for row in rows] == [str(s) for row in seeds for s in row]
    by_id = {item["evaluation_result_id"]: item for item in record.record["evaluation_results"]}
    average = by_id[rows[0]["evaluation_result_id"]]
    assert math.isclose(average["score_details"]["score"], scores.mean())
    for row in rows:
        assert row["evaluation_id"] == record.record["evaluation_id"]
        assert row["model_id"] == "org/model"
        assert row["evaluation"]["is_correct"] == (row["evaluation"]["score"] == 1.0)
        assert bool(row["answer_attribution"]) == row["evaluation"]["is_correct"]
        assert row["performance"] == {"generation_time_ms": 250.0}
        assert row["output"] == {"raw": []}
        last = row["metadata"]["trial"] == str(N - 1)
        assert ("token_usage" in row) != last
    assert rows[0]["token_usage"] == {"input_tokens": 11, "output_tokens": 30, "total_tokens": 41}


@pytest.fixture
def logged(tmp_path):
    """A run of three questions whose texts are in its samples file."""
    texts = [
        [("It is \\boxed{0}.", 1), ("I \ud800 give\x00up \u202e</script>", 0)],
        [("It is \\boxed{2}.", 1), ("It is \\boxed{3}.", 0)],
        [("No.", 0), ("No!", 0)],
    ]
    questions = [
        question(
            [{"text": text, "outcome": right, "finish_reason": "stop"} for text, right in trials], n
        )
        for n, trials in enumerate(texts)
    ]
    folder = write_run(tmp_path / "run", "coin", questions)
    (read,) = read_runs([folder]).runs
    return read, texts


def test_the_texts_are_those_of_the_samples_file(logged):
    read, texts = logged
    summary = summarise(read)
    record = submission(summary, model_id="org/coin")
    output = io.BytesIO()
    written = InstancesFile(summary, record)
    written.write(output)
    lines = output.getvalue().decode("ascii").splitlines()
    rows = [json.loads(line) for line in lines]
    statement = [row["output"]["raw"][0] for row in rows]
    assert statement == [text.replace("\ud800", "\ufffd") for trials in texts for text, _ in trials]
    assert [row["input"]["raw"] for row in rows[::2]] == [f"What is {n} + {n}?" for n in range(3)]
    assert [row["input"]["reference"] for row in rows[::2]] == [["0"], ["2"], ["4"]]
    assert (written.rows, written.without_completion) == (6, 0)
    assert written.checksum == hashlib.sha256(output.getvalue()).hexdigest()
    complete = record.with_instances(written.rows, written.checksum).record
    assert complete["detailed_evaluation_results"]["total_rows"] == 6
    assert complete["detailed_evaluation_results"]["file_path"] == record.instances_path
    assert record.instances_path == record.path.replace(".json", "_samples.jsonl")
    hashes = {row["sample_hash"] for row in rows}
    assert len(hashes) == 3


def test_texts_stay_at_home_where_that_is_asked(logged):
    read, _ = logged
    summary = summarise(read)
    for row in instances(summary, submission(summary, model_id="org/coin"), texts=False):
        assert row["input"] == {"raw": "", "reference": []}
        assert row["output"] == {"raw": []}
        assert row["answer_attribution"] == []
        assert "sample_hash" not in row


def test_texts_of_other_outcomes_are_not_taken(logged):
    """A samples file that was replaced since: no text is put beside an outcome it did not get."""
    read, _ = logged
    (samples,) = {Path(item) for item in read.sources if "samples_" in item}
    rows = [json.loads(line) for line in samples.read_text(encoding="utf-8").splitlines()]
    rows[1]["outcomes"] = rows[1]["outcomes"][::-1]
    samples.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    summary = summarise(read)
    with refused("RUN", "damaged", "other content"):
        list(instances(summary, submission(summary, model_id="org/coin")))


def test_counts_have_no_instances():
    counts = Outcomes.from_counts([[3, 5]], question_ids=("p",))
    with refused("--instances", "unsupported", "m"):
        check_instances(TaskRun("m", "sums", (), counts))
