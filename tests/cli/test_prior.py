"""Earlier runs as prior evidence: `--prior` in summary, compare and rank."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
from _support.command_line import answer
from _support.errors import refused
from _support.saved_matrices import outcomes, saved

from lm_eval_bayes import Outcomes, hbayes_at_n, learn_shift
from lm_eval_bayes.analysis.prior_runs import GivenPrior, assign_priors
from lm_eval_bayes.runs.task_run import SavedRuns, TaskRun

#: Shifts from earlier runs are learned.
AUTO = ("--prior-strength", "auto")
NEW, OLD, RIVAL = outcomes(1), outcomes(2, n=6), outcomes(3, lift=0.2)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    saved(folder / "new", "model", NEW)
    saved(folder / "old", "model-0", OLD)
    saved(folder / "few", "model-0", OLD[:5])
    saved(folder / "greedy", "model", OLD[:, :1], task="contest")
    saved(folder / "rival", "rival", RIVAL)
    saved(folder / "inverted", "rival-0", 1 - RIVAL)
    saved(folder / "elsewhere", "model", OLD, first=100)
    shutil.copytree(folder / "new", folder / "copied")
    return folder


def with_prior(matrix, earlier, strength):
    """The posterior of an outcome matrix with the trials of another as prior trials."""
    return hbayes_at_n(Outcomes.from_matrix(matrix, R0=earlier, prior_strength=strength))


def test_summary_shows_the_score_with_the_prior_and_without(runs):
    content = answer("summary", runs / "new", "--prior", runs / "old", "--prior-strength", "0.5")
    (effect,) = content["priors"]
    informed, alone = with_prior(NEW, OLD, 0.5), hbayes_at_n(Outcomes.from_matrix(NEW))
    assert effect["with"]["mu"] == pytest.approx(informed.mu, rel=1e-12)
    assert effect["without"]["mu"] == pytest.approx(alone.mu, rel=1e-12)
    assert effect["without"]["interval"]["low"] == pytest.approx(alone.interval().low, rel=1e-9)
    shown = {name: effect[name] for name in ("questions", "trials", "strength", "prior_model")}
    assert shown == {"questions": 12, "trials": 72, "strength": 0.5, "prior_model": "model-0"}
    (task,) = content["tasks"]
    assert task["hbayes"]["benchmark"]["mu"] == effect["with"]["mu"]
    assert task["avg"]["value"] == pytest.approx(NEW.mean())
    (without,) = answer("summary", runs / "new")["tasks"]
    assert task["rows"] == without["rows"]


def test_questions_that_the_earlier_run_lacks_have_no_prior(runs):
    arguments = ("--prior", runs / "few", "--prior-strength", "1")
    (effect,) = answer("summary", runs / "new", *arguments)["priors"]
    counts = [[int((row == k).sum()) for k in (0, 1)] for row in NEW]
    earlier = [[int((row == k).sum()) for k in (0, 1)] for row in OLD[:5]] + [[0, 0]] * 7
    expected = hbayes_at_n(Outcomes.from_counts(counts, prior_counts=earlier))
    assert effect["questions"] == 5
    assert effect["with"]["mu"] == pytest.approx(expected.mu, rel=1e-12)


def test_the_shift_is_learned_from_all_models_that_are_ranked(runs):
    arguments = ("--prior", f"model={runs / 'old'}", "--prior", f"rival={runs / 'inverted'}", *AUTO)
    content = answer("rank", runs / "new", runs / "rival", *arguments)
    models = [Outcomes.from_matrix(NEW, R0=OLD), Outcomes.from_matrix(RIVAL, R0=1 - RIVAL)]
    shift = learn_shift(models)
    assert [effect["shift"] for effect in content["priors"]] == [shift.scale] * 2
    assert [effect["strength"] for effect in content["priors"]] == [None] * 2
    rows = {row["model"]: row for row in content["leaderboards"][0]["places"]}
    for name, model in zip(("model", "rival"), models, strict=True):
        informed = hbayes_at_n(replace(model, prior_strength=shift))
        assert rows[name]["mu"] == pytest.approx(informed.mu, rel=1e-12)


@pytest.mark.parametrize("strength", [".5", "auto"])
@pytest.mark.parametrize("scope", ["benchmark", "population"])
def test_compare_gives_a_prior_to_a_side(runs, scope, strength):
    arguments = ("--prior", f"A={runs / 'old'}", "--prior-strength", strength, "--scope", scope)
    content = answer("compare", runs / "new", runs / "rival", *arguments)
    without = answer("compare", runs / "new", runs / "rival", "--scope", scope)
    assert content["without_priors"]["p_a_greater"] == without["p_a_greater"]
    task = content["tasks"][0]
    assert task["difference"] != without["tasks"][0]["difference"]
    assert task["b"]["mu"] == without["tasks"][0]["b"]["mu"]
    assert task["a"]["mu"] == content["priors"][0]["with"]["mu"]


# -- runs without files --------------------------------------------------------------------------


def run(model, trials, ids=("p", "q"), task="aime", **more):
    return TaskRun.from_trials(model, task, trials, list(ids), **more)


def test_other_categories_are_refused():
    rubric = run("old", [[0, 2], [1, 1]], weights=(0.0, 0.5, 1.0))
    with refused("prior", "mismatch"):
        assign_priors([run("new", [[0], [1]])], [GivenPrior(SavedRuns((rubric,)))], 1)


def test_a_copy_of_the_run_is_refused():
    seeds = ((1, 2), (3, 4))
    new, old = (run("m", [[0, 1], [1, 1]], seeds=seeds) for _ in range(2))
    with refused("prior", "duplicate"):
        assign_priors([new], [GivenPrior(SavedRuns((old,)))], 1)
    other = run("m", [[0, 1], [1, 0]], seeds=seeds)
    assert assign_priors([new], [GivenPrior(SavedRuns((other,)))], 1.0).priors


def test_positions_in_matrices_of_different_tasks_are_not_the_same_questions():
    new, old = run("m", [[0], [1]], ids="01"), run("m", [[1], [1]], ids="01", task="math")
    with refused("prior", "mismatch"):
        assign_priors([new], [GivenPrior(SavedRuns((old,)))], 1)


def test_questions_are_matched_by_their_ids():
    old = run("old", [[1, 1, 1], [0]], ids="qp")
    outcomes = assign_priors([run("new", [[0], [1]])], [GivenPrior(SavedRuns((old,)))], 1).runs[0]
    assert np.array_equal(outcomes.outcomes.prior_counts, [[1, 0], [0, 3]])
