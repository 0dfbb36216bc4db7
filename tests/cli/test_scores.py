"""Runs whose trials have scores between two bounds, in every command that reads runs."""

from __future__ import annotations

import json

import numpy as np
import pytest
from _support.command_line import answer, called, command_error, refusal
from _support.run_files import SENT, row, write_run
from scipy.special import comb

from lm_eval_bayes import ScoreOutcomes, hbayes_at_n

TASK = "summaries_bayes"
M, N = 12, 8


def scores_of(skill, seed):
    rng = np.random.default_rng(seed)
    means = np.clip(rng.beta(4 * skill, 4 * (1 - skill), (M, 1)), 0.02, 0.98)
    return np.round(1 + 4 * rng.beta(6 * means, 6 * (1 - means), (M, N)), 3)


SCORES = {"good": scores_of(0.7, 1), "poor": scores_of(0.4, 2)}
RIGHT = {name: (scores > 3).astype(int) for name, scores in SCORES.items()}


def lines(name, trials=range(N)):
    """Lines as the class logs them: scores of the first metric, grades of the second."""
    logged = []
    for number in range(M):
        columns = {"trial": list(trials), "seed": [1000 * number + i for i in trials]}
        texts = [f"{name} {number} {i}" for i in trials]
        line = row(number, outcomes=[0] * len(texts), texts=texts, sent=SENT, **columns)
        del line["outcomes"]
        line["scores"] = SCORES[name][number, list(trials)].tolist()
        line["outcomes(exact)"] = RIGHT[name][number, list(trials)].tolist()
        logged.append(line)
    return logged


def save(folder, name, trials=range(N), bounds=(1.0, 5.0), threshold=None, rows=None, **changes):
    bayes = {"weights": [0, 1], "bounds": list(bounds), "threshold": threshold}
    config = {
        "task": TASK,
        "metadata": {"version": 1.0, "bayes": {**bayes, "metrics": ["grade", "exact"]}},
    }
    rows = lines(name, trials) if rows is None else rows
    write_run(folder, rows, task=TASK, model=f"org/{name}", configs={TASK: config}, **changes)
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return {name: save(folder / name, name) for name in SCORES}


def test_summary_has_the_mean_score_and_its_posterior(runs):
    (task,) = answer("summary", runs["good"])["tasks"]
    scores = SCORES["good"]
    assert task["avg"]["value"] == pytest.approx(scores.mean())
    error = np.sqrt(scores.var(axis=1, ddof=1).mean() / scores.size)
    assert task["avg"]["sd"] == pytest.approx(error)
    posterior = hbayes_at_n(ScoreOutcomes.from_scores(scores, (1, 5)))
    learned = task["hbayes"]["benchmark"]
    assert (learned["mu"], learned["sigma"]) == pytest.approx((posterior.mu, posterior.sigma))
    assert abs(learned["mu"] - scores.mean()) < 0.5 * error
    assert learned["sigma"] == pytest.approx(error, rel=0.15)
    assert (task["bayes"], task["rows"], task["n_range"]) == (None, {}, [N, N])
    assert task["score_bounds"] == [1, 5]


def test_compare_and_rank_are_of_the_mean_scores(runs):
    (task,) = answer("compare", runs["good"], runs["poor"])["tasks"]
    sides = [hbayes_at_n(ScoreOutcomes.from_scores(s, (1, 5))) for s in SCORES.values()]
    assert task["difference"] == pytest.approx(sides[0].mu - sides[1].mu)
    assert task["sd"] == pytest.approx(np.hypot(sides[0].sigma, sides[1].sigma))
    largest = task["questions"][0]
    number = next(i for i in range(M) if f"{i} + {i}?" == largest["text"])
    assert largest["a"] == [N]
    assert largest["mean_a"] == pytest.approx(SCORES["good"][number].mean())
    (board,) = answer("rank", *runs.values())["leaderboards"]
    assert [place["model"] for place in board["places"]] == ["org/good", "org/poor"]


def test_the_mean_over_a_scored_and_a_graded_task(runs, tmp_path):
    graded = [row(i, outcomes=[1, 0, 1, 1]) for i in range(10)]
    write_run(tmp_path / "graded", graded, model="org/good")
    content = answer("summary", runs["good"], tmp_path / "graded")
    (group,) = content["groups"]
    equal = group["means"]["equal"]
    averages = [task["avg"]["value"] for task in content["tasks"]]
    assert equal["avg"] == pytest.approx(np.mean(averages))
    assert equal["hbayes"]["benchmark"]["mu"] == pytest.approx(np.mean(averages), abs=0.1)
    assert equal["bayes"] is None


def test_a_threshold_gives_pass_at_k(tmp_path):
    save(tmp_path / "good", "good", threshold=3.5)
    (task,) = answer("summary", tmp_path / "good")["tasks"]
    right = (SCORES["good"] >= 3.5).sum(axis=1)
    expected = 1 - (comb(N - right, 2) / comb(N, 2)).mean()
    assert task["rows"]["pass@2"] == pytest.approx(expected)
    assert "maj@8" not in task["rows"]


def test_a_metric_is_chosen_by_its_name(runs):
    (task,) = answer("summary", runs["good"], "--metric", "exact")["tasks"]
    assert task["avg"]["value"] == pytest.approx(RIGHT["good"].mean())
    assert task["metric"] == "exact"
    assert "grade or exact" in called("summary", runs["good"])[2]
    assert refusal("summary", runs["good"], "--metric", "rouge")[0] == "--metric"


def test_prior_evidence_refuses_scores(runs):
    prior = ("--prior", runs["poor"], "--prior-strength", "1")
    assert refusal("summary", runs["good"], *prior)[1] == "unsupported"


@pytest.mark.parametrize(
    ("scores", "got"),
    [
        ([2.0] * 7 + [5.5], "5.5"),
        ([2.0] * 7 + [float("nan")], "nan"),
        ([2.0] * 7 + ["3"], "'3'"),
        ("2.0", "list"),
        ([2.0] * 3, "3 in `scores` of 8 trials"),
    ],
)
def test_broken_scores_are_refused(tmp_path, scores, got):
    rows = lines("good")
    rows[3]["scores"] = scores
    save(tmp_path / "good", "good", rows=rows)
    assert got in str(command_error("summary", tmp_path / "good"))


def test_scores_are_compared_only_with_scores_of_the_same_bounds(runs, tmp_path):
    graded = [row(i, outcomes=[1, 0]) for i in range(M)]
    write_run(tmp_path / "graded", graded, task=TASK, model="org/graded")
    save(tmp_path / "wide", "poor", bounds=(0.0, 5.0))
    for other in ("graded", "wide"):
        assert refusal("compare", runs["good"], tmp_path / other)[1] == "mismatch"


@pytest.mark.parametrize("options", [(), ("--metric", "grade")])
def test_without_the_results_file_the_bounds_are_unknown(tmp_path, options):
    save(tmp_path / "good", "good")
    for file in tmp_path.rglob("results_*.json"):
        file.unlink()
    assert "bounds" in str(command_error("summary", tmp_path / "good", *options))


def test_failed_grading_is_told(tmp_path):
    rows = lines("good")
    rows[2]["grading_error_notes"] = {"1": "ValueError: no judge", "3": "ValueError: no judge"}
    save(tmp_path / "failed", "good", rows=rows)
    assert "2 trials whose grading failed" in called("summary", tmp_path / "failed")[2]


@pytest.mark.parametrize(("broken", "other"), [("grade", "exact"), ("exact", "grade")])
def test_a_metric_without_numbers_says_why_and_the_other_can_be_read(tmp_path, broken, other):
    rows = lines("good")
    for line in rows[5:]:
        del line["scores" if broken == "grade" else "outcomes(exact)"]
    folder = save(tmp_path / "good", "good", rows=rows)
    (results,) = folder.glob("results_*.json")
    content = json.loads(results.read_text(encoding="utf-8"))
    content["configs"][TASK]["metadata"]["lm_eval_bayes"] = {"errors": {broken: "no number"}}
    results.write_text(json.dumps(content), encoding="utf-8")
    assert "no number" in str(command_error("summary", folder, "--metric", broken))
    (task,) = answer("summary", folder, "--metric", other)["tasks"]
    assert task["trials"] == M * N
