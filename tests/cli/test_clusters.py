"""Clusters of questions, from a task's metadata to every command that has scope population."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from _support.command_line import answer, refusal
from _support.harness_command import lm_eval_command
from _support.run_files import row, write_run

from lm_eval_bayes.errors import InvalidInputError, TaskConfigError
from lm_eval_bayes.harness.task.questions import check_clusters
from lm_eval_bayes.harness.task.settings import Settings
from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.stats.comparison.compare import compare
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import clustered_posterior, hbayes_at_n
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
    table = json.loads(results.read_text(encoding="utf-8"))["posterior"][TASK]["none"]
    posterior = clustered_posterior(run.outcomes)
    interval = posterior.interval()
    assert table["hbayes@4_population"] == pytest.approx(posterior.mu, abs=1e-9)
    assert table["hbayes@4_population_low"] == pytest.approx(interval.low, abs=1e-9)
    assert table["hbayes@4_population_high"] == pytest.approx(interval.high, abs=1e-9)


def test_every_command_uses_them_for_scope_population(coins):
    a, b = (read_runs(path).runs[0] for path in coins)
    expected = compare(a.outcomes, b.outcomes, "population")
    population = ("--scope", "population")

    (task,) = answer("summary", coins[0])["tasks"]
    assert task["clusters"] == 5
    assert task["hbayes"]["benchmark"]["clusters"] is None
    learned = task["hbayes"]["population"]
    assert learned["mu"] == pytest.approx(expected.a.mu)
    assert learned["clusters"]["n_clusters"] == 5

    (task,) = answer("compare", *coins, *population)["tasks"]
    assert task["n_clusters"] == 5
    assert task["sd"] == pytest.approx(expected.sd)

    (board,) = answer("rank", *coins, *population)["leaderboards"]
    assert board["n_clusters"] == 5
    assert board["z"][0][1] == pytest.approx(expected.z, abs=1e-6)

    plan = answer("plan", *coins, "--width", ".4", "--apart", *population)
    (pair,) = plan["separation"][0]["pairs"]
    assert pair["n_clusters"] == 5
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
    (of_logs,), (of_stores,) = (
        answer("compare", *paths, "--scope", "population")["tasks"] for paths in (coins, stores)
    )
    assert of_stores["n_clusters"] == 5
    numbers = ("sd", "z", "difference")
    assert [of_stores[key] for key in numbers] == [of_logs[key] for key in numbers]
    assert refusal("summary", stores[0], "--cluster", "topic")[0] == "--cluster"
    # a merged store and its samples hold them too
    merge(stores, tmp_path / "both.sqlite")
    assert {run.clusters for run in read_runs(tmp_path / "both.sqlite").runs} == {a.clusters}
    export_samples(stores[1], tmp_path / "samples")
    assert read_runs(tmp_path / "samples").runs[0].clusters == a.clusters


def test_a_rubric_is_scored_with_clusters(coins):
    rubric = ("study rubric", *coins, "--schema", "exact_match", "--scope", "population")
    (table,) = answer(*rubric)["tasks"]
    assert table["clusters"] == 5
    (schema,) = table["schemata"]
    score, (run,) = schema["scores"][0], read_runs(coins[0]).runs
    independent = dataclasses.replace(run.outcomes, clusters=None)
    assert score["sigma"] > 1.2 * hbayes_at_n(independent, "population").sigma
    assert score["sigma"] == pytest.approx(hbayes_at_n(run.outcomes, "population").sigma, rel=0.2)


def test_a_task_refuses_clusters_before_it_samples():
    with pytest.raises(TaskConfigError, match="contest"):
        harness(
            *("--model", "biased_coin", "--model_args", "p=.5"),
            metadata={"bayes_n": 2, "cluster": "contest"},
        )
    for years in ([2025, 2025, 2025], [2025, None]):
        with pytest.raises(TaskConfigError):
            check_clusters([{"year": year} for year in years], "year", "aime")
    with pytest.raises(InvalidInputError):
        Settings.from_metadata({"cluster": 3}, repeats=2)


def contests(folder, model, seed=0):
    """Write a run of thirty questions of six contests."""
    rng = np.random.default_rng(seed)
    rows = [
        row(
            i,
            outcomes=rng.binomial(1, 0.5, 4).tolist(),
            doc={"problem": f"{i}?", "answer": "0", "contest": f"C{CONTESTS[i]}"},
        )
        for i in range(30)
    ]
    return write_run(folder / model, rows, model=model)


def test_a_field_of_the_documents_is_read_where_the_task_recorded_none(tmp_path):
    path = contests(tmp_path, "a")
    (run,) = read_runs(path).runs
    assert run.clusters is None
    (run,) = read_runs(path, cluster="contest").runs
    assert run.clusters == tuple(f"C{c}" for c in CONTESTS)
    options = ("--cluster", "contest", "--scope", "population")
    (task,) = answer("summary", path, *options)["tasks"]
    assert task["clusters"] == 6


def edited(path, change):
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for line in lines:
        change(line)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


@pytest.mark.parametrize(
    "change",
    [
        lambda line: line["doc"].pop("contest"),
        lambda line: line["doc"].update(contest="C"),
        lambda line: line["doc_id"] == 7 and line["doc"].pop("contest"),
    ],
    ids=["no question has it", "all are of one", "one question lacks it"],
)
def test_a_field_that_makes_no_clusters_is_refused(tmp_path, change):
    path = contests(tmp_path, "a")
    edited(path, change)
    assert refusal("rank", path, "--cluster", "contest")[0] == "--cluster"


def test_the_questions_of_a_matrix_have_no_fields(tmp_path):
    np.savez(tmp_path / "m.npz", R=np.ones((1, 30, 4), dtype=int))
    runs = (contests(tmp_path, "a"), tmp_path / "m.npz")
    assert refusal("rank", *runs, "--cluster", "contest")[0] == "--cluster"


def test_runs_of_one_task_share_clusters_and_may_not_contradict_each_other(tmp_path):
    path = contests(tmp_path, "a")
    edited(path, lambda line: line.update(cluster=line["doc"]["contest"]))
    other = contests(tmp_path, "b", seed=1)
    a, b = read_runs([path, other]).runs
    assert a.clusters == b.clusters
    assert (len(a.notes), len(b.notes)) == (0, 1)
    edited(other, lambda line: line.update(cluster="D" if line["doc_id"] == 3 else "C0"))
    assert refusal("compare", path, other, "--scope", "population")[1] == "mismatch"
    # by name, the field counts for both
    a, b = read_runs([path, other], cluster="contest").runs
    assert a.clusters == b.clusters


def test_recorded_clusters_that_say_nothing_become_a_note(tmp_path):
    path = contests(tmp_path, "a")
    for change, number in (
        (lambda line: line.update(cluster="C0"), "all questions"),
        (lambda line: line.pop("cluster") if line["doc_id"] < 4 else None, "26 of 30"),
    ):
        edited(path, change)
        (run,) = read_runs(path).runs
        assert run.clusters is None
        assert number in run.notes[-1]
