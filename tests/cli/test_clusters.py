"""Clusters of questions, from a task's metadata to every command that has scope population."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest
from _support.command_line import called as lmeb
from _support.harness_command import lm_eval_command
from _support.run_files import row, write_run
from _support.tool_logs import DATA
from scipy import stats

from lm_eval_bayes.errors import InvalidInputError, TaskConfigError
from lm_eval_bayes.harness.task.questions import check_clusters
from lm_eval_bayes.harness.task.settings import Settings
from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.stats.bayes_at_n import single_trial_posterior
from lm_eval_bayes.stats.clustered import clustered_posterior
from lm_eval_bayes.stats.comparison.compare import compare
from lm_eval_bayes.stats.comparison.single_trial import compare_paired, compare_unpaired
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.store.merge import merge
from lm_eval_bayes.store.samples_export import export_samples

TASK = "demo_arithmetic_bayes"
CONTESTS = np.repeat(np.arange(6), 5)


def harness(*arguments, metadata):
    lm_eval_command("--tasks", TASK, "--metadata", json.dumps(metadata), *arguments)


@pytest.fixture(scope="module")
def coins(tmp_path_factory):
    """Two runs of the demo, whose questions have five levels, each a cluster."""
    folder = tmp_path_factory.mktemp("coins")
    for seed in (1, 2):
        arguments = f"backend=biased_coin,beta=2:3,seed={seed},store={folder}/store{seed}.sqlite"
        harness(
            *("--model", "trials", "--model_args", arguments),
            *("--output_path", folder / f"out{seed}"),
            "--log_samples",
            metadata={"bayes_n": 4, "cluster": "level"},
        )
    return folder / "out1", folder / "out2"


def test_a_run_carries_the_cluster_of_each_question(coins):
    (run,) = read_runs(coins[0]).runs
    assert run.clusters == tuple("11111111222222223333333344444444" + "5" * 8)
    (samples,) = coins[0].glob("*/samples_*.jsonl")
    logged = [json.loads(line) for line in samples.read_text(encoding="utf-8").splitlines()]
    assert {line["cluster"] for line in logged} == set("12345")
    (results,) = coins[0].glob("*/results_*.json")
    table = json.loads(results.read_text(encoding="utf-8"))["results"][TASK]
    posterior = clustered_posterior(run.outcomes)
    interval = posterior.interval()
    assert table["hbayes@4_population,none"] == pytest.approx(posterior.mu, abs=1e-9)
    assert table["hbayes@4_population_low,none"] == pytest.approx(interval.low, abs=1e-9)
    assert table["hbayes@4_population_high,none"] == pytest.approx(interval.high, abs=1e-9)


def test_every_command_uses_them_for_scope_population(coins):
    a, b = (read_runs(path).runs[0] for path in coins)
    expected = compare(a.outcomes, b.outcomes, "population")
    population = ("--scope", "population")

    code, printed, _ = lmeb("summary", coins[0], "--json")
    (task,) = json.loads(printed)["tasks"]
    assert (code, task["clusters"]) == (0, 5)
    assert task["hbayes"]["benchmark"]["clusters"] is None
    learned = task["hbayes"]["population"]
    assert learned["mu"] == pytest.approx(expected.a.mu)
    assert learned["clusters"]["n_clusters"] == 5

    code, printed, _ = lmeb("compare", *coins, *population, "--json")
    (task,) = json.loads(printed)["tasks"]
    assert (code, task["n_clusters"]) == (0, 5)
    assert task["sd"] == pytest.approx(expected.sd)

    code, printed, _ = lmeb("rank", *coins, *population, "--json")
    (board,) = json.loads(printed)["leaderboards"]
    assert (code, board["n_clusters"]) == (0, 5)
    assert board["z"][0][1] == pytest.approx(expected.z, abs=1e-6)

    goal = ("--width", ".4", "--separate")
    code, printed, _ = lmeb("plan", *coins, *goal, *population, "--json")
    plan = json.loads(printed)
    (pair,) = plan["separation"][0]["pairs"]
    assert (code, pair["n_clusters"]) == (0, 5)
    assert pair["forecast"]["current"] == pytest.approx(expected.z)
    assert [line["n_clusters"] for line in plan["runs"]] == [5, 5]


def test_a_trial_store_gives_the_same_answers_as_the_log(coins, tmp_path):
    folder = coins[0].parent
    stores = [folder / f"store{seed}.sqlite" for seed in (1, 2)]
    for log, store in zip(coins, stores, strict=True):
        (a,), (b,) = read_runs(log).runs, read_runs(store).runs
        assert (b.clusters, b.question_ids) == (a.clusters, a.question_ids)
        np.testing.assert_array_equal(b.outcomes.counts, a.outcomes.counts)
        assert read_runs(store, cluster="level").runs[0].clusters == a.clusters
    options = ("--scope", "population", "--json")
    (of_logs,), (of_stores,) = (
        json.loads(lmeb("compare", *paths, *options)[1])["tasks"] for paths in (coins, stores)
    )
    assert of_stores["n_clusters"] == 5
    assert [of_stores[key] for key in ("sd", "z", "difference")] == [
        of_logs[key] for key in ("sd", "z", "difference")
    ]
    code, _, error = lmeb("summary", stores[0], "--cluster", "topic")
    assert (code, "`--cluster` must name what all runs have" in error) == (2, True)
    # a merged store and its samples hold them too
    merge(stores, tmp_path / "both.sqlite")
    assert {run.clusters for run in read_runs(tmp_path / "both.sqlite").runs} == {a.clusters}
    export_samples(stores[1], tmp_path / "samples")
    assert read_runs(tmp_path / "samples").runs[0].clusters == a.clusters


def test_a_rubric_is_scored_with_clusters(coins):
    rubric = ("rubric", *coins, "--schema", "exact_match", "--scope", "population")
    code, printed, error = lmeb(*rubric, "--json")
    assert code == 0, error
    (table,) = json.loads(printed)["tasks"]
    assert table["clusters"] == 5
    (schema,) = table["schemata"]
    score, (run,) = schema["scores"][0], read_runs(coins[0]).runs
    posterior = hbayes_at_n(run.outcomes, "population")
    assert score["sigma"] > 1.2 * hbayes_at_n(without_clusters(run), "population").sigma
    assert score["sigma"] == pytest.approx(posterior.sigma, rel=0.2)
    assert "sampled in 5 clusters" in lmeb(*rubric)[1]


def without_clusters(run):
    return dataclasses.replace(run.outcomes, clusters=None)


def test_models_of_independent_questions_refuse_clusters():
    clusters = ["I", "I", "II", "II"]
    a = Outcomes.from_matrix([[1], [0], [1], [1]], clusters=clusters)
    for function in (compare_paired, compare_unpaired):
        with pytest.raises(InvalidInputError, match=r"`a` must have no clusters.*got 2 clusters"):
            function(a, a)
    with pytest.raises(InvalidInputError, match="`outcomes` must have no clusters"):
        single_trial_posterior(a)


@pytest.mark.parametrize("command", ["summary", "rank", "compare", "plan"])
def test_tables_name_the_number_of_clusters(coins, command):
    more = ("--width", ".4") if command == "plan" else ()
    code, printed, _ = lmeb(command, *coins, *more, "--scope", "population")
    assert code == 0
    in_a_column = command in ("summary", "plan")
    assert ("clusters" if in_a_column else "sampled in 5 clusters") in printed
    code, printed, _ = lmeb(command, *coins, *more, "--scope", "benchmark")
    assert (code, "sampled in" in printed) == (0, False)


def test_the_report_names_them(coins, tmp_path):
    page = tmp_path / "r.html"
    code, _, error = lmeb("report", *coins, "--scope", "population", "--output", page)
    assert code == 0, error
    assert "sampled in 5 clusters" in page.read_text(encoding="utf-8")


def test_a_task_refuses_clusters_before_it_samples():
    fields = "id, problem, answer, level, check"
    message = f"question 0 has no contest (its fields are {fields})"
    with pytest.raises(TaskConfigError, match=re.escape(message)):
        harness(
            *("--model", "biased_coin", "--model_args", "p=.5"),
            metadata={"bayes_n": 2, "cluster": "contest"},
        )
    with pytest.raises(TaskConfigError, match="at least two clusters; all questions have the year"):
        check_clusters([{"year": 2025}] * 3, "year", "aime")
    with pytest.raises(TaskConfigError, match="question 1 has no year"):
        check_clusters([{"year": 2025}, {"year": None}], "year", "aime")
    with pytest.raises(InvalidInputError, match="`cluster` must be the name of a field"):
        Settings.from_metadata({"cluster": 3}, repeats=2)
    with pytest.raises(TaskConfigError, match="no setting `bayes_cluster`"):
        Settings.from_metadata({"bayes_cluster": "year"}, repeats=2)


def contests(folder, model, fields=("contest",), rate=0.5, seed=0, **config):
    """Write a run of thirty questions of six contests."""
    rng = np.random.default_rng(seed)
    rows = [
        row(
            i,
            outcomes=rng.binomial(1, rate, 4).tolist(),
            doc={"problem": f"{i}?", "answer": "0", **dict.fromkeys(fields, f"C{CONTESTS[i]}")},
        )
        for i in range(30)
    ]
    path = write_run(folder / model, rows, model=model, **config)
    return path, rows


def test_a_field_of_the_documents_is_read_where_the_task_recorded_none(tmp_path):
    path, _ = contests(tmp_path, "a")
    (run,) = read_runs(path).runs
    assert run.clusters is None
    (run,) = read_runs(path, cluster="contest").runs
    assert run.clusters == tuple(f"C{c}" for c in CONTESTS)
    right = np.bincount(CONTESTS, weights=run.outcomes.counts[:, 1])
    code, printed, _ = lmeb(
        "summary", path, "--cluster", "contest", "--scope", "population", "--json"
    )
    (task,) = json.loads(printed)["tasks"]
    assert (code, task["clusters"]) == (0, 6)
    # six equal clusters: near the t interval of their means, and wider than independent questions
    means = right / 20
    low, high = stats.t.interval(0.95, 5, means.mean(), means.std(ddof=1) / np.sqrt(6))
    interval = task["hbayes"]["population"]["interval"]
    assert interval["low"] == pytest.approx(low, abs=0.08)
    assert interval["high"] == pytest.approx(high, abs=0.08)


def edited(path, change):
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for line in lines:
        change(line)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def test_what_is_refused_names_its_rule(tmp_path):
    path, _ = contests(tmp_path, "a")
    with pytest.raises(InvalidInputError, match="which 30 of 30 questions lack"):
        read_runs(path, cluster="topic")
    one, _ = contests(tmp_path, "one")
    edited(one, lambda line: line["doc"].update(contest="C"))
    with pytest.raises(InvalidInputError, match="at least two clusters of the questions"):
        read_runs(one, cluster="contest")
    some, _ = contests(tmp_path, "some")
    edited(some, lambda line: line["doc_id"] == 7 and line["doc"].pop("contest"))
    with pytest.raises(InvalidInputError, match=r"1 of 30 questions lack .*question 7"):
        read_runs(some, cluster="contest")
    # the questions of a matrix have no documents
    np.savez(tmp_path / "m.npz", R=np.ones((1, 30, 4), dtype=int))
    with pytest.raises(InvalidInputError, match="samples of the harness, with documents"):
        read_runs([path, tmp_path / "m.npz"], cluster="contest")
    code, _, error = lmeb("rank", path, "--cluster", "topic")
    assert (code, "`--cluster` must be a field of every logged question" in error) == (2, True)


def test_runs_of_one_task_share_clusters_and_may_not_contradict_each_other(tmp_path):
    path, _ = contests(tmp_path, "a")
    edited(path, lambda line: line.update(cluster=line["doc"]["contest"]))
    other, _ = contests(tmp_path, "b", seed=1)
    a, b = read_runs([path, other]).runs
    assert a.clusters == b.clusters
    assert a.notes == ()
    assert f"records no clusters of its questions: those of {a.label} were used" in b.notes[-1]
    edited(other, lambda line: line.update(cluster="D" if line["doc_id"] == 3 else "C0"))
    with pytest.raises(InvalidInputError, match="into the same cluster"):
        read_runs([path, other])
    # by name, the field counts for both
    a, b = read_runs([path, other], cluster="contest").runs
    assert a.clusters == b.clusters
    code, _, error = lmeb("compare", path, other, "--scope", "population")
    assert (code, "into the same cluster" in error) == (2, True)


def test_recorded_clusters_that_say_nothing_become_a_note(tmp_path):
    path, _ = contests(tmp_path, "a")
    edited(path, lambda line: line.update(cluster="C0"))
    (run,) = read_runs(path).runs
    assert run.clusters is None
    assert "all questions are of one cluster (C0)" in run.notes[-1]
    edited(path, lambda line: line.pop("cluster") if line["doc_id"] < 4 else None)
    (run,) = read_runs(path).runs
    assert run.clusters is None
    assert "4 of 30 questions have no cluster" in run.notes[-1]


def test_files_of_counts_have_a_column_of_clusters(tmp_path):
    path = tmp_path / "counts.csv"
    lines = [f"q{i},{i % 4},4,C{CONTESTS[i]},{i % 2}\n" for i in range(30)]
    path.write_text("id,c,n,cluster,parity\n" + "".join(lines))
    (run,) = read_runs(path).runs
    assert run.clusters == tuple(f"C{c}" for c in CONTESTS)
    (run,) = read_runs(path, cluster="parity").runs
    assert run.clusters == tuple("01" * 15)
    code, printed, _ = lmeb("summary", path, "--json")
    assert (code, json.loads(printed)["tasks"][0]["clusters"]) == (0, 6)


@pytest.mark.parametrize(
    ("log", "field"),
    [
        ("inspect_ai/weak.eval", "contest"),
        ("inspect_ai/weak.json", "contest"),
        ("tau2/strong.json", "ticket"),
        ("verifiers/sums--org--weak", "part"),
        ("verifiers_traces/weak", "part"),
        ("promptfoo/sums.json", "part"),
        ("every_eval_ever", "epoch"),
        ("evalscope/strong", "id"),
        ("matharena/outputs", "types"),
        ("nemo_skills/published/eval-results/gpqa", "predicted_answer"),
        ("lm_eval_0.4.9", "question"),
    ],
)
def test_a_field_that_a_log_lacks_is_refused_with_those_that_it_has(log, field):
    code, printed, error = lmeb("summary", DATA / log, "--cluster", "prat")
    assert (code, printed) == (2, "")
    (line,) = error.splitlines()
    assert line.startswith("error: `--cluster` must be a field of ")
    assert re.search(rf"[, ]{field}\b", line)
    assert "prat" in line


def test_a_log_without_fields_has_no_clusters():
    code, _, error = lmeb("summary", DATA / "lighteval", "--cluster", "prat")
    assert code == 2
    assert "`--cluster` must be left out: doc.specific" in error
