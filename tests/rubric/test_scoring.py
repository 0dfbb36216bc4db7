"""Scores of runs whose categories are counted by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
from _support.fake_runs import MODELS, N_QUESTIONS, category_of, cuts_of, fake_runs, trials_of

from lm_eval_bayes import Outcomes, bayes_at_n, hbayes_at_n
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.rubric.schemata import SCHEMATA
from lm_eval_bayes.rubric.scoring import check_signals, missing_signals, score, score_categories
from lm_eval_bayes.rubric.signals import SignalTable
from lm_eval_bayes.rubric.thresholds import TaskThresholds, task_thresholds

#: Three questions with 4, 3 and 2 trials; two trials cannot be told.
QUESTIONS = [
    {"is_correct": [1, 1, 0, 0], "has_box": [1, 0, 1, 0], "repeated_pattern": [0, 0, 0, 0]},
    {"is_correct": [1, 1, 1], "has_box": [1, 1, None], "repeated_pattern": [0, 1, 0]},
    {"is_correct": [0, None], "has_box": [1, 0], "repeated_pattern": [0, 0]},
]
COUNTS = [[0, 1, 1, 1, 1], [1, 0, 0, 0, 1], [0, 0, 1, 0, 0]]


@pytest.fixture
def table():
    return SignalTable.from_questions(QUESTIONS)


def test_counts_by_hand(table):
    found = score(SCHEMATA["format_aware"], table, TaskThresholds(), ["a", "b", "c"])
    assert found.counts.tolist() == COUNTS
    assert found.missing == 2
    assert found.categories == {
        "invalid": 1,
        "wrong, unboxed": 1,
        "wrong, boxed": 2,
        "correct, unboxed": 1,
        "correct, boxed": 2,
        "missing": 2,
    }
    assert sum(found.categories.values()) == table.n_trials
    assert found.outcomes.question_ids == ("a", "b", "c")
    assert found.outcomes.weights.tolist() == [0, 0, 1 / 3, 2 / 3, 1]


def test_a_missing_trial_is_not_a_wrong_one(table):
    """It is in no category, so that the score is that of the other trials."""
    schema = SCHEMATA["exact_match"]
    whole = score(schema, table, TaskThresholds())
    assert whole.missing == 1
    kept = [{name: values[:] for name, values in columns.items()} for columns in QUESTIONS]
    kept[2] = {name: values[:1] for name, values in kept[2].items()}
    without = score(schema, SignalTable.from_questions(kept), TaskThresholds())
    assert without.missing == 0
    np.testing.assert_array_equal(whole.counts, without.counts)
    assert whole.posterior("bayes").mu == without.posterior("bayes").mu


def test_the_posterior_is_that_of_the_counts(table):
    schema = SCHEMATA["format_aware"]
    found = score(schema, table, TaskThresholds())
    by_hand = Outcomes.from_counts(COUNTS, weights=[0, 0, 1 / 3, 2 / 3, 1])
    uniform, learned = bayes_at_n(by_hand), hbayes_at_n(by_hand, seed=5)
    assert found.posterior("bayes").mu == uniform.mu
    assert found.posterior("bayes").sigma == uniform.sigma
    assert found.posterior(seed=5).mu == learned.mu
    assert found.posterior("hbayes", 5).sigma == learned.sigma
    assert found.posterior("hbayes", 5).interval() == learned.interval()
    assert found.posterior(seed=6).sigma != learned.sigma, "the seed is not passed on"


def test_bayes_at_n_by_hand(table):
    """[Hariri 2026, Alg. 1] on the counts above, with a uniform prior of five categories."""
    weights = np.array([0, 0, 1 / 3, 2 / 3, 1])
    nu = np.array(COUNTS) + 1.0
    total = nu.sum(axis=1)
    mean = nu @ weights / total
    variance = (nu @ weights**2 / total - mean**2) / (total + 1)
    found = score(SCHEMATA["format_aware"], table, TaskThresholds()).posterior("bayes")
    assert found.mu == pytest.approx(mean.mean(), abs=1e-14)
    assert found.sigma == pytest.approx(np.sqrt(variance.sum()) / 3, abs=1e-14)


@pytest.mark.parametrize("schema", SCHEMATA)
def test_every_schema_on_the_fake_run(schema):
    """The counts of the independent classification, question by question."""
    runs = fake_runs()
    tables = {model: SignalTable.from_questions(runs[model]) for model in MODELS}
    pooled, cuts = task_thresholds(list(tables.values())), cuts_of(trials_of(runs))
    for model in MODELS:
        categories = [category_of(schema, trial, cuts) for trial in trials_of({model: runs[model]})]
        expected = np.zeros((N_QUESTIONS, len(SCHEMATA[schema].categories)), dtype=int)
        for trial, category in enumerate(categories):
            if category >= 0:
                expected[trial // 8, category] += 1
        found = score(SCHEMATA[schema], tables[model], pooled)
        np.testing.assert_array_equal(found.counts, expected)
        assert found.missing == categories.count(-1)
        by_hand = Outcomes.from_counts(expected, weights=SCHEMATA[schema].weights)
        assert found.posterior("bayes").mu == bayes_at_n(by_hand).mu
        assert found.thresholds == pooled.hash


def test_scorio_agrees_on_hand_made_counts():
    """Its Bayes@N takes a matrix and weights; categories that never occur must be in them."""
    scorio = pytest.importorskip("scorio.eval", reason="scorio is not installed")
    schema = SCHEMATA["strict_compliance"]
    R = np.array([[0, 1, 2, 2], [1, 1, 2, 0], [1, 1, 1, 1]])
    columns = [
        {
            "repeated_pattern": (row == 0).astype(int).tolist(),
            "is_correct": (row == 2).astype(int).tolist(),
            "has_box": [1] * 4,
        }
        for row in R
    ]
    found = score(schema, SignalTable.from_questions(columns), TaskThresholds()).posterior("bayes")
    mu, sigma = scorio.bayes(R, np.array(schema.weights))[:2]
    assert (found.mu, found.sigma) == (
        pytest.approx(mu, abs=1e-12),
        pytest.approx(sigma, abs=1e-12),
    )


@pytest.mark.parametrize("prior", ["bayes", "hbayes"])
def test_a_model_that_is_always_right_may_still_fail(prior):
    """Categories are the schema's, not those that happened to occur: sd 0 would be too sure."""
    columns = {"repeated_pattern": [0] * 4, "is_correct": [1] * 4, "has_box": [1] * 4}
    table = SignalTable.from_questions([columns] * 5)
    for name in ("exact_match", "format_aware", "strict_compliance"):
        found = score(SCHEMATA[name], table, TaskThresholds())
        posterior = found.posterior(prior)
        assert found.counts.shape == (5, len(SCHEMATA[name].categories))
        assert posterior.sigma > 0.01
        assert 0.3 < posterior.mu < 1.0
        assert posterior.interval().low < 0.97


@pytest.mark.parametrize("prior", ["bayes", "hbayes"])
def test_affine_weights_map_affinely(table, prior):
    schema = SCHEMATA["format_aware"]
    other = schema.with_weights([3 - 2 * w for w in schema.weights])
    one = score(schema, table, TaskThresholds()).posterior(prior, 1)
    two = score(other, table, TaskThresholds()).posterior(prior, 1)
    assert two.mu == pytest.approx(3 - 2 * one.mu, abs=1e-10)
    assert two.sigma == pytest.approx(2 * one.sigma, abs=1e-10)


@pytest.mark.parametrize("prior", ["bayes", "hbayes"])
def test_the_order_of_questions_changes_nothing(prior):
    questions = fake_runs()["hasty"]
    cuts = task_thresholds([SignalTable.from_questions(questions)])
    schema = SCHEMATA["conf_wrong_penalty"]
    order = np.random.default_rng(3).permutation(len(questions))
    one = score(schema, SignalTable.from_questions(questions), cuts)
    two = score(schema, SignalTable.from_questions([questions[k] for k in order]), cuts)
    np.testing.assert_array_equal(one.counts[order], two.counts)
    assert one.posterior(prior).mu == pytest.approx(two.posterior(prior).mu, abs=1e-12)
    assert one.posterior(prior).sigma == pytest.approx(two.posterior(prior).sigma, abs=1e-12)


def test_another_model_does_not_move_a_score_under_frozen_thresholds():
    tables = {m: SignalTable.from_questions(q) for m, q in fake_runs().items()}
    frozen = task_thresholds([tables["careful"], tables["hasty"]])
    schema = SCHEMATA["concision_high_conf"]
    before = score(schema, tables["careful"], frozen)
    score(schema, tables["stuck"], frozen)
    after = score(schema, tables["careful"], frozen)
    np.testing.assert_array_equal(before.counts, after.counts)
    pooled = task_thresholds(list(tables.values()))
    assert (score(schema, tables["careful"], pooled).counts != before.counts).any()


def test_a_score_as_plain_json(table):
    found = score(SCHEMATA["strict_compliance"], table, TaskThresholds())
    told = json.loads(json.dumps(found.to_dict()))
    assert told == {
        "schema": "strict_compliance",
        "weights": [0, 0, 1],
        "categories": {"invalid": 1, "wrong or unboxed": 5, "correct, boxed": 2, "missing": 1},
        "missing": 1,
        "thresholds": TaskThresholds().hash,
    }


# --- what is refused ---


def test_a_schema_without_its_signals_is_refused_by_name(table):
    message = (
        r"`schema` must find the signals of conf_calibrated in the trials: completion_bpt comes "
        r"from a recording model with log-probabilities .*; got no completion_bpt"
    )
    with pytest.raises(InvalidInputError, match=message):
        score(SCHEMATA["conf_calibrated"], table, TaskThresholds())


def test_all_missing_signals_are_named_with_their_sources():
    table = SignalTable.from_questions([{"repeated_pattern": [None, None], "is_correct": [1, 0]}])
    schema = SCHEMATA["verifier_only"]
    lacking = ("repeated_pattern", "verifier_a", "verifier_b", "verifier_c")
    assert sorted(missing_signals(schema, table)) == sorted(lacking)
    with pytest.raises(InvalidInputError, match="find the signals of verifier_only") as raised:
        check_signals([schema], table, "schemata")
    told = str(raised.value)
    assert told.startswith("`schemata` must find the signals of verifier_only in the trials: ")
    source = "a recording model (--model trials, vllm-signals or hf-signals)"
    assert f"repeated_pattern comes from {source}; " in told
    for name in lacking[1:]:
        assert f"{name} comes from lm-eval-bayes verify" in told


def test_signals_that_are_there_are_not_asked_for(table):
    fitting = [SCHEMATA[n] for n in ("exact_match", "format_aware", "strict_compliance")]
    check_signals(fitting, table)
    with pytest.raises(InvalidInputError, match="the signals of ood_robustness"):
        check_signals([*fitting, SCHEMATA["ood_robustness"], SCHEMATA["verifier_only"]], table)


@pytest.mark.parametrize(
    "categories", [[0, 1, 2], [0] * 8 + [3], [0] * 8 + [-2], [[0] * 9]], ids=str
)
def test_categories_that_the_schema_does_not_have(table, categories):
    message = r"`category` must be one category 0\.\.2 per trial, or -1"
    with pytest.raises(InvalidInputError, match=message):
        score_categories(SCHEMATA["exact_match"], np.array(categories), table, TaskThresholds())


def test_a_prior_that_is_none(table):
    found = score(SCHEMATA["exact_match"], table, TaskThresholds())
    with pytest.raises(InvalidInputError, match="`prior` must be hbayes or bayes; got 'learned'"):
        found.posterior("learned")
