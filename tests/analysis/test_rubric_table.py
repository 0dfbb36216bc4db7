"""Runs of several models under the twelve schemata, counted and scored once more by other code."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from _support.errors import refused
from _support.fake_runs import N_TRIALS, category_of, cuts_of, fake_runs, trials_of
from _support.saved_runs import TASK, question, write_run

from lm_eval_bayes.analysis.rubric_table import classify_runs, pooled_thresholds, rubric_table
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.schemata import SCHEMATA
from lm_eval_bayes.rubric.scoring import RubricScore
from lm_eval_bayes.rubric.thresholds import OWN_THRESHOLDS, Thresholds
from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.runs.task_run import TaskRun
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.ranking.rank import rank
from lm_eval_bayes.stats.tie_rules import best_first, separations

HOSTILE = "mo$x_1$del \\$ & <b>数</b> \x00"


@pytest.fixture(scope="module")
def columns():
    """The fake run of three models; where `has_box` is missing a text has no box."""
    runs = fake_runs()
    for questions in runs.values():
        for signals in questions:
            signals["has_box"] = [value or 0 for value in signals["has_box"]]
    return runs


def questions_of(columns):
    """Return the questions of a model's columns; a text always tells whether there is a box."""
    questions = []
    for number, signals in enumerate(columns):
        trials = []
        for values in zip(*signals.values(), strict=True):
            trial = dict(zip(signals, values, strict=True))
            ratio = trial["token_ratio"]
            saved = {
                "text": "It is \\boxed{7}." if trial["has_box"] else "It is 7.",
                "outcome": trial["is_correct"],
                "completion_tokens": None if ratio is None else round(64 * ratio),
                "finish_reason": {0: "stop", 1: "length", None: None}[trial["repeated_pattern"]],
                **{name: trial[name] for name in ("prompt_bpt", "completion_bpt")},
            }
            if trial["verifier_a"] is not None:
                saved["verdict"] = tuple(trial[f"verifier_{label}"] for label in "abc")
            trials.append(saved)
        questions.append(question(trials, number))
    return questions


@pytest.fixture(scope="module")
def runs(columns, tmp_path_factory):
    """The same, written to files and read."""
    folder = tmp_path_factory.mktemp("runs")
    for model, of_model in columns.items():
        write_run(folder / model, model, questions_of(of_model))
    return read_runs([folder], signals="all").runs


@pytest.fixture(scope="module")
def classified(runs):
    return classify_runs(runs, pooled_thresholds(runs))


def only(classified, *names):
    """Return classified runs with these schemata alone."""
    return replace(classified, scores={name: classified.scores[name] for name in names})


def made(model, n_questions=4, n_trials=6, seed=0, **more):
    """Return a run from random numbers, without files."""
    rng = np.random.default_rng(seed)
    size = n_questions * n_trials
    found = {
        "is_correct": rng.integers(0, 2, size),
        "has_box": rng.integers(0, 2, size),
        "token_ratio": rng.random(size),
        "repeated_pattern": rng.random(size) < 0.1,
        "prompt_bpt": np.repeat(rng.random(n_questions), n_trials),
        "completion_bpt": rng.random(size),
        **more,
    }
    signals = {
        name: tuple(np.asarray(values, dtype=float).reshape(n_questions, n_trials))
        for name, values in found.items()
    }
    return TaskRun.from_trials(
        model,
        TASK,
        [column.astype(int) for column in signals["is_correct"]],
        [f"hash{q}" for q in range(n_questions)],
        sources=(f"samples_{model}.jsonl",),
        signals=signals,
    )


def judged(run, name="judge-3B", trials=None):
    """Return a run as a verifier has judged it, all of it or its first trials."""
    there = np.arange(run.n_trials) < (run.n_trials if trials is None else trials)
    ends = np.cumsum([t.size for t in run.trials])[:-1]
    parts = {"verifier_a": 0.7, "verifier_b": 0.2, "verifier_c": 0.1}
    verdicts = {n: tuple(np.split(np.where(there, p, np.nan), ends)) for n, p in parts.items()}
    return replace(run, signals={**run.signals, **verdicts}, verifiers=({"name": name},))


# -- categories, thresholds, posteriors ----------------------------------------------------------


def test_counts_of_saved_runs_equal_the_tables_of_the_paper_applied_by_hand(columns, classified):
    cuts = cuts_of(trials_of(columns))
    assert classified.models == tuple(columns)
    assert classified.left_out == ()
    assert list(classified.scores) == list(SCHEMATA)
    for schema, scores in classified.scores.items():
        for model, questions in columns.items():
            missing = 0
            for number, signals in enumerate(questions):
                trials = [{n: v[i] for n, v in signals.items()} for i in range(N_TRIALS)]
                found = Counter(category_of(schema, trial, cuts) for trial in trials)
                missing += found.pop(-1, 0)
                counts = scores[model].outcomes.counts[number]
                assert Counter(dict(enumerate(counts.tolist()))) == found, (schema, model, number)
            assert scores[model].missing == missing
    assert sum(score.missing for score in classified.scores["exact_match"].values()) > 0


def test_the_learned_prior_and_its_ranks_are_those_of_the_core(classified):
    table = rubric_table(only(classified, "exact_match", "verifier_probe", "concision_high_conf"))
    for row in table.rows:
        posteriors = {one.model: hbayes_at_n(one.score.outcomes) for one in row.scores}
        ranking = rank(posteriors, draws=1000)
        for one in row.scores:
            assert one.mu == posteriors[one.model].mu
            assert one.sigma == posteriors[one.model].sigma
            assert one.interval == posteriors[one.model].interval(0.95)
            assert one.rank == ranking.rank_of(one.model)


def test_of_questions_like_these_models_are_compared_question_by_question(classified):
    some = only(classified, "exact_match", "format_aware")
    table = rubric_table(some, scope="population", seed=3)
    benchmark = rubric_table(some, seed=3)
    for row, narrower in zip(table.rows, benchmark.rows, strict=True):
        posteriors = {
            score.model: hbayes_at_n(score.score.outcomes, "population", seed=3)
            for score in row.scores
        }
        ranking = rank(posteriors, draws=1000, seed=3)
        assert ranking.paired
        for score, narrow in zip(row.scores, narrower.scores, strict=True):
            assert score.mu == posteriors[score.model].mu
            assert score.sigma == posteriors[score.model].sigma > narrow.sigma
            assert score.rank == ranking.rank_of(score.model)
    assert table.to_dict()["scope"] == "population"


def test_one_question_pairs_nothing():
    runs = [made("a", 1), made("b", 1, seed=1)]
    classified = only(classify_runs(runs, pooled_thresholds(runs)), "exact_match")
    with pytest.raises(InvalidInputError, match="at least two questions"):
        rubric_table(classified, scope="population")


def models_of(shares, rng, n_trials):
    """Scores of models whose trials have the category probabilities `shares`, (L, M, 5)."""
    schema = SCHEMATA["format_aware"]
    counts = [np.array([rng.multinomial(n_trials, each) for each in model]) for model in shares]
    outcomes = [Outcomes.from_counts(of_model, weights=schema.weights) for of_model in counts]
    return {f"m{i}": RubricScore(schema, 0, outcomes[i]) for i, of_model in enumerate(counts)}


@pytest.mark.slow
def test_equal_models_are_rarely_separated(classified):
    """Nominal 5% of boards of eight models; an uncorrected z separates some pair on most."""
    rng = np.random.default_rng(6)
    separated = {"simultaneous": 0, "uncorrected": 0}
    for _ in range(40):
        models = models_of([rng.dirichlet([0.5, 0.3, 0.3, 0.5, 1], 20)] * 8, rng, 4)
        board = replace(classified, scores={"format_aware": models})
        (row,) = rubric_table(board).rows
        separated["simultaneous"] += max(score.rank for score in row.scores) > 1
        order, mu = best_first(*np.array([(s.mu, s.sigma) for s in row.scores]).T, 0.0)
        z = separations(mu, np.array([row.scores[i].sigma for i in order]))
        separated["uncorrected"] += z[0].max() >= 1.645
    # P(more than 6 of 40 | 5%) is .3%
    assert separated["simultaneous"] <= 6
    assert separated["uncorrected"] > 16


def test_other_weights_change_the_scores_of_their_schema_alone(runs, classified):
    given = {"format_aware": (0, 0, 1 / 3, 0.5, 1), "exact_match": [0, -1, 3]}
    schemata = (*given, "ood_robustness")
    reweighted = classify_runs(runs, pooled_thresholds(runs), weights=given)
    plain = rubric_table(only(classified, *schemata))
    changed = rubric_table(only(reweighted, *schemata))
    for before, after in zip(plain.rows, changed.rows, strict=True):
        name = after.schema.name
        if name not in given:
            assert [one.to_dict() for one in before.scores] == [o.to_dict() for o in after.scores]
            continue
        assert after.schema.weights == tuple(map(float, given[name]))
        for one, other in zip(before.scores, after.scores, strict=True):
            outcomes = Outcomes.from_counts(one.score.outcomes.counts, weights=given[name])
            assert other.mu == pytest.approx(hbayes_at_n(outcomes).mu, rel=1e-12)
            assert other.score.categories == one.score.categories


def test_weights_of_no_schema_of_the_table(runs):
    with refused("weights", "choice", "mine"):
        classify_runs(runs, pooled_thresholds(runs), weights={"mine": [0, 1]})


def means(table):
    return np.array([[score.mu for score in row.scores] for row in table.rows])


def test_frozen_thresholds_keep_a_score_when_a_model_joins(runs):
    two, newcomer = runs[:2], runs[2]
    frozen = Thresholds.from_json(pooled_thresholds(two).to_json())
    schemata = [SCHEMATA["conf_calibrated"], SCHEMATA["ood_robustness"]]
    alone = rubric_table(classify_runs(two, frozen, schemata))
    joined = rubric_table(classify_runs([*two, newcomer], frozen, schemata))
    assert np.array_equal(means(alone), means(joined)[:, :2])
    moved = rubric_table(classify_runs(runs, pooled_thresholds(runs), schemata))
    assert not np.array_equal(means(alone), means(moved)[:, :2])
    assert joined.to_dict()["thresholds"]["pooled_over"] == [run.label for run in two]


def test_a_single_run_says_that_its_thresholds_are_its_own(runs):
    first, second = runs[:2]
    own = classify_runs([first], pooled_thresholds([first]))
    table = rubric_table(only(own, "conf_calibrated"))
    assert table.to_dict()["thresholds"]["note"] == OWN_THRESHOLDS
    for several in ([first], [first, second]):
        pooled = classify_runs(several, pooled_thresholds([first, second]))
        assert pooled.thresholds_note is None
    # nothing of this schema depends on a percentile
    exact = classify_runs([first], pooled_thresholds([first]), [SCHEMATA["exact_match"]])
    assert exact.thresholds_note is None


# -- what models must have in common -------------------------------------------------------------


def test_models_answered_the_same_questions():
    runs = [made("a", 3), made("b", 4)]
    with refused("RUN", "mismatch", "only b has hash3"):
        classify_runs(runs, pooled_thresholds(runs))


def test_either_all_models_have_a_verifiers_verdicts_or_none():
    one, other = judged(made("a")), made("b", seed=1)
    pooled = pooled_thresholds([one, other])
    with refused("runs", "mismatch", "judge-3B, none"):
        classify_runs([one, other], pooled)
    found = classify_runs([made("a"), other], pooled)
    assert found.verifier is None
    assert [left.schema for left in found.left_out] == ["verifier_only", "verifier_probe"]
    both = classify_runs([one, judged(other)], pooled)
    assert (both.verifier, both.left_out) == ({"name": "judge-3B"}, ())


def test_two_verifiers_cannot_be_mixed():
    runs = [judged(made("a")), judged(made("b", seed=1), "other-judge")]
    with refused("runs", "mismatch", "judge-3B, other-judge"):
        classify_runs(runs, pooled_thresholds(runs))


def test_an_unfinished_verification_is_warned_of():
    runs = [judged(made("a")), judged(made("b", seed=1), trials=5)]
    classified = only(classify_runs(runs, pooled_thresholds(runs)), "verifier_only")
    first, second, *_ = rubric_table(classified).warnings
    assert first.startswith("b: 5 of 24 trials have a verdict")
    assert second.startswith("verifier_only: ")
    assert "b missing" in second


def test_schemata_without_their_signals_are_left_out_or_refused():
    nothing = np.full(24, np.nan)
    one, other = made("a"), made("b", seed=1, prompt_bpt=nothing, token_ratio=nothing)
    pooled = pooled_thresholds([one, other])
    found = classify_runs([one, other], pooled)
    left = {one.schema: one for one in found.left_out}
    verifier = ["verifier_only", "verifier_probe"]
    lengths = ["efficiency_adjusted", "concision_high_conf"]
    assert sorted(left) == sorted(["ood_robustness", *verifier, *lengths])
    assert left["ood_robustness"].models == ("b",)
    assert "prompt_bpt" in left["ood_robustness"].lacks
    assert left["verifier_only"].models == ("a", "b")
    assert "verifier_a, verifier_b, verifier_c" in left["verifier_only"].lacks
    with refused("schema", "missing", "ood_robustness"):
        classify_runs([one, other], pooled, [SCHEMATA["ood_robustness"]])
    with refused("schema", "missing", "ood_robustness"):
        classify_runs([one, other], pooled, weights={"ood_robustness": [0, 0, 1, 1, 1]})


def test_frozen_thresholds_of_runs_that_were_never_wrong():
    # wrong trials would be missing, and the score one of right answers alone
    frozen = pooled_thresholds([made("r", is_correct=np.ones(24))])
    found = classify_runs([made("a")], frozen)
    lacking = {one.schema: one.lacks for one in found.left_out}
    assert "tau_low_wrong" in lacking["conf_wrong_penalty"]
    assert "format_confidence" in found.scores
    perfect = made("b", is_correct=np.ones(24))
    assert "conf_wrong_penalty" in classify_runs([perfect], frozen).scores
