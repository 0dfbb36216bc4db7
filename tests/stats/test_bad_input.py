"""Bad input of the numeric API gets a sentence that names the argument, never a raw error."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest

import lm_eval_bayes as leb
from lm_eval_bayes.errors import InvalidInputError
from lm_eval_bayes.harness.task.settings import Settings
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import NO_TRIALS, PRIOR_ALONE
from lm_eval_bayes.stats.validation import (
    MOST_DRAWS,
    MOST_HELD,
    check_integer,
    check_seed,
    check_size,
)

A = leb.Outcomes.from_counts([[3, 5], [6, 2], [4, 4]])
B = leb.Outcomes.from_counts([[5, 3], [6, 2], [7, 1]])
RUBRIC = leb.Outcomes.from_counts([[3, 4, 1], [6, 1, 1], [4, 2, 2]])
ONCE = leb.Outcomes.from_matrix([[1], [0], [1]])
TENSOR = np.array([[[0, 1, 1, 0], [1, 1, 0, 1]], [[0, 0, 1, 0], [1, 1, 0, 0]]])
POSTERIOR, OTHER = leb.bayes_at_n(A), leb.bayes_at_n(B)
PAIR = {"a": POSTERIOR, "b": OTHER}
ANCHORS = leb.AnchorMatrix.from_probabilities([[0.1, 0.2, 0.3], [0.5, 0.6, 0.7]])
RAGGED = [[1, 2], [3]]
CELLS = (5, 3, 2, 4)
HUGE = 10**400
#: More digits than Python is willing to print.
UNPRINTABLE = 10**5000


class Mute:
    """A stranger whose repr fails."""

    def __repr__(self):
        raise RuntimeError("no words")


SHAPES = {
    "weights": (lambda x: leb.Outcomes.from_counts([[1, 2], [3, 4]], weights=x), "weights"),
    "prior_counts": (
        lambda x: leb.Outcomes.from_counts([[1, 2], [3, 4]], prior_counts=x),
        "prior_counts",
    ),
    "counts": (leb.Outcomes.from_counts, "counts"),
    "R": (leb.Outcomes.from_matrix, "R"),
    "R0": (lambda x: leb.Outcomes.from_matrix([[1], [0]], R0=x), "R0"),
    "independence": (leb.query_independence, "R"),
    "take": (ANCHORS.take, "queries"),
    "take_queries": (lambda x: leb.take_queries(A, x), "queries"),
    "anchors": (leb.AnchorMatrix.from_probabilities, "probabilities"),
    "convergence": (leb.convergence_at_n, "R"),
    "tau": (lambda x: leb.kendall_tau_b(x, [1, 2]), "x"),
}


@pytest.mark.parametrize("name", SHAPES)
def test_ragged_lists(name):
    call, argument = SHAPES[name]
    with pytest.raises(InvalidInputError, match=f"`{argument}` must be a rectangular array of num"):
        call(RAGGED)


SEQUENCES = {
    "rules": (leb.AnyOf, "`rules` must be at least one stopping rule"),
    "analyses": (
        lambda x: leb.DecisionReached(analyses=x),
        "`analyses` must be numbers of trials, at least 1 and increasing",
    ),
    "rate": (leb.DecisionReached().false_decision_rate, "`analyses` must be numbers of trials"),
    "sizes": (
        lambda x: leb.sample_size_sweep(ANCHORS, A, sizes=x),
        r"`sizes` must be a sequence of numbers in 1\.\.3",
    ),
    "answers": (lambda x: leb.maj_at_k(x, [[True]], 1), "`answers` must be a sequence of sequ"),
    "correct": (lambda x: leb.maj_at_k([["7"]], x, 1), "`correct` must be a sequence of seq"),
    "row": (lambda x: leb.maj_at_k([x], [[True]], 1), "`answers` must be a sequence of sequ"),
    "ks": (lambda x: leb.compare_pass_curves(A, B, x), "`ks` must be rising integers"),
    "queries": (ANCHORS.take, r"`queries` must be distinct positions in 0\.\.2"),
    "clusters": (
        lambda x: leb.clustered_interval([1, 0], x),
        r"`clusters` must have one entry per score \(2\)",
    ),
    "names": (
        lambda x: leb.AnchorMatrix.from_probabilities([[0.1], [0.2]], x),
        "`names` must be 2 distinct names",
    ),
    "ids": (
        lambda x: leb.Outcomes.from_matrix([[1], [0]], question_ids=x),
        "`question_ids` must be a sequence of ids",
    ),
}


#: Where None means that the argument is left out.
OPTIONAL = ("analyses", "sizes", "ks", "names", "ids")


@pytest.mark.parametrize("name", SEQUENCES)
@pytest.mark.parametrize(
    "value", [np.array(3), 3, b"ab", {1, 2}], ids=["0-d", "int", "bytes", "set"]
)
def test_what_is_no_sequence(name, value):
    call, message = SEQUENCES[name]
    with pytest.raises(InvalidInputError, match=message):
        call(value)


@pytest.mark.parametrize("name", [name for name in SEQUENCES if name not in OPTIONAL])
def test_nothing_where_a_sequence_is_needed(name):
    call, message = SEQUENCES[name]
    with pytest.raises(InvalidInputError, match=message):
        call(None)


def test_an_endless_list_of_analyses_is_refused():
    with pytest.raises(InvalidInputError, match=r"`analyses` must be .*, at most 10,000 of them"):
        leb.DecisionReached(analyses=range(1, 10**12))


OPTIONS = {
    "hbayes": (lambda x: leb.hbayes_at_n(A, scope=x), "scope"),
    "interval": (lambda x: POSTERIOR.interval(method=x), "method"),
    "scheme": (lambda x: leb.convergence_at_n(TENSOR, scheme=x, replicates=5), "scheme"),
    "ties": (lambda x: leb.convergence_at_n(TENSOR, ties=x, replicates=5), "ties"),
    "curve": (lambda x: leb.kendall_curve(TENSOR, [1, 2], scheme=x, replicates=5), "scheme"),
    "confusion": (lambda x: leb.confusion_posterior(CELLS).interval(method=x), "method"),
    "confidence": (lambda x: leb.confusion_confidence(CELLS, method=x), "method"),
    "odds": (lambda x: leb.odds_ratio_interval(2, 5, 3, 5, method=x), "method"),
    "estimator": (lambda x: leb.compare(A, B, estimator=x), "estimator"),
    "ranking": (lambda x: leb.rank(PAIR, ties=x), "ties"),
    "bootstrap": (lambda x: leb.bootstrap_interval([1, 0], scope=x), "scope"),
    "anchor": (lambda x: leb.capability_intervals(ANCHORS, A).p_above(x), "anchor"),
    "model": (leb.rank(PAIR).rank_of, "model"),
    "correction": (lambda x: leb.DecisionReached(correction=x), "correction"),
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("value", [np.array(["a", "b"]), np.array([]), []], ids=["2", "0", "list"])
def test_arrays_where_a_name_is_meant(name, value):
    call, argument = OPTIONS[name]
    with pytest.raises(InvalidInputError, match=f"`{argument}` must be .*got"):
        call(value)


COUNTS = {
    "wilson": (lambda n: leb.wilson_interval(1, n), "trials"),
    "clopper": (lambda n: leb.clopper_pearson_interval(1, n), "trials"),
    "odds": (lambda n: leb.odds_ratio_interval(1, n, 1, 5), "trials_a"),
    "pass": (lambda n: leb.pass_at_k_posterior(A, n), "k"),
    "hat": (lambda n: leb.pass_hat_k_posterior(A, n), "k"),
    "g-pass": (lambda n: leb.g_pass_at_k_posterior(A, n, 0.5), "k"),
    "mg-pass": (lambda n: leb.mg_pass_at_k_posterior(A, n), "k"),
    "strict": (lambda n: leb.strict_majority_at_k_posterior(A, n), "k"),
    "curves": (lambda n: leb.compare_pass_curves(A, B, [1, n]), "ks"),
    "budget": (leb.BudgetSpent, "trials"),
    "look": (lambda n: leb.BudgetSpent(3).evaluate(n, {}), "trials"),
    "min_trials": (lambda n: leb.WidthReached(0.1, min_trials=n), "min_trials"),
    "analyses": (lambda n: leb.DecisionReached(analyses=[1, n]), "analyses"),
    "max_trials": (lambda n: leb.trials_needed(POSTERIOR, width=0.1, max_trials=n), "max_trials"),
    "seed": (lambda n: leb.hbayes_at_n(RUBRIC, seed=n), "seed"),
    "versions": (lambda n: leb.update_mimics([2], [2], 3, versions=n), "versions"),
}
SIZES = {
    "interval": (lambda n: POSTERIOR.interval(draws=n), "draws"),
    "rank": (lambda n: leb.rank(PAIR, draws=n), "draws"),
    "compare": (lambda n: leb.compare(A, B, draws=n), "draws"),
    "curves": (lambda n: leb.compare_pass_curves(A, B, draws=n), "draws"),
    "paired": (lambda n: leb.compare_paired(ONCE, ONCE, draws=n), "draws"),
    "confusion": (lambda n: leb.confusion_posterior(CELLS, draws=n), "draws"),
    "maj": (lambda n: leb.maj_at_k([["7"]], [[True]], 1, draws=n), "draws"),
    "maj posterior": (lambda n: leb.maj_at_k_posterior([["7"]], [[True]], 1, draws=n), "draws"),
    "futures": (lambda n: leb.trials_needed(POSTERIOR, width=0.1, draws=n), "draws"),
    "bootstrap": (lambda n: leb.bootstrap_interval([1, 0], replicates=n), "replicates"),
    "confidence": (
        lambda n: leb.confusion_confidence(CELLS, method="bootstrap", replicates=n),
        "replicates",
    ),
    "sweep": (lambda n: leb.sample_size_sweep(ANCHORS, A, replicates=n), "replicates"),
    "convergence": (lambda n: leb.convergence_at_n(TENSOR, replicates=n), "replicates"),
    "curve": (lambda n: leb.kendall_curve(TENSOR, [1, 2], replicates=n), "replicates"),
    "study": (lambda n: leb.prior_study(replicates=n), "replicates"),
    "independence": (
        lambda n: leb.query_independence(TENSOR, permutations=n),
        "permutations",
    ),
    "beta": (lambda n: leb.beta_mimics([1], [1], n), "n_questions"),
    "means": (lambda n: leb.mimics_with_means([0.5], n), "n_questions"),
    "questions": (lambda n: leb.prior_study(n_questions=n), "n_questions"),
    "tosses": (lambda n: leb.simulate_outcomes([0.5], n), "n_trials"),
    "largest": (lambda n: leb.trials_until_z([0.5], [0.4], 2, largest=n), "largest"),
}


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [HUGE, UNPRINTABLE], ids=["400 digits", "5000 digits"])
def test_integers_beyond_all_floats(name, value):
    call, argument = COUNTS[name]
    with pytest.raises(InvalidInputError, match=f"`{argument}` must be an integer .*at most"):
        call(value)


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("value", [MOST_DRAWS + 1, 10**30, HUGE], ids=["10⁷+1", "10³⁰", "10⁴⁰⁰"])
def test_amounts_beyond_all_memory(name, value):
    call, argument = SIZES[name]
    with pytest.raises(InvalidInputError, match=f"`{argument}` must be an integer .*at most"):
        call(value)


def test_amounts_are_bounded_by_what_each_holds():
    assert check_size("draws", MOST_DRAWS, 1) == MOST_DRAWS
    assert check_size("draws", MOST_HELD // 100, 1, per_item=100) == MOST_HELD // 100
    with pytest.raises(InvalidInputError, match="at least 1 and at most 2,000,000; got 2000001"):
        check_size("draws", MOST_HELD // 100 + 1, 1, per_item=100)
    # the smallest number that makes sense is always allowed
    assert check_size("draws", 100, 100, per_item=MOST_HELD) == 100


def test_the_shared_bounds_are_the_documented_ones():
    assert check_integer("n", 10**30, 0) == 10**30
    assert check_seed(2**128 - 1) == 2**128 - 1
    with pytest.raises(InvalidInputError, match="`seed` must be an integer of at least 0 and at"):
        check_seed(2**128)
    assert leb.wilson_interval(1, 10**12).high < 1e-10


def test_fisher_takes_what_scipy_can():
    with pytest.raises(InvalidInputError, match=r'at most 50,000 .* for "fisher"; take "delta"'):
        leb.odds_ratio_interval(1, 10**12, 1, 5, method="fisher")


FLAGS = {
    "paired": (lambda x: leb.difference_interval([1, 0, 1], [0, 0, 1], paired=x), "paired"),
    "paired, benchmark": (
        lambda x: leb.difference_interval(A, B, scope="benchmark", paired=x),
        "paired",
    ),
    "small_sample": (
        lambda x: leb.clustered_interval([1, 0, 1], [1, 2, 3], small_sample=x),
        "small_sample",
    ),
}


@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.parametrize("value", ["no", 1, 0, None, np.array([True])], ids=repr)
def test_only_bools_are_true_or_false(name, value):
    call, argument = FLAGS[name]
    with pytest.raises(InvalidInputError, match=f"`{argument}` must be True or False; got"):
        call(value)


def test_numpy_bools_are_bools():
    ours = leb.difference_interval([1, 0, 1], [0, 0, 1], paired=np.bool_(False))
    assert ours.method == "clt-unpaired"


NUMBERS = {
    "beta": (lambda: leb.f_score(1e300), "`beta` must be at most 1e150, as its square is needed"),
    "threshold": (
        lambda: leb.DecisionReached().threshold(float("nan")),
        "`trials` must be an integer of at least 1; got nan",
    ),
    "rule": (
        lambda: leb.DecisionReached(float("nan")),
        r"`confidence` must be a number in \[0\.5, 1\); got nan",
    ),
    "rank": (
        lambda: leb.rank(PAIR, confidence=float("nan")),
        r"`confidence` must be a number in \[0\.5, 1\); got nan",
    ),
    "epsilon": (
        lambda: leb.capability_intervals(ANCHORS, A, 1e-300),
        r"`epsilon` must be a number in \[1e-12, 0\.5\)",
    ),
    "strength": (
        lambda: leb.mimics_with_means([0.5], 3, strength=1e300),
        "`strength` must be a finite number above 0, at most 1e9",
    ),
    "score": (
        lambda: leb.confusion_posterior(CELLS, int),
        "`score` must be a name or a function",
    ),
    "unused": (
        lambda: leb.confusion_confidence(CELLS, replicates=3),
        "`replicates` must be an integer of at least 100; got 3",
    ),
    "capability": (
        lambda: leb.capability_intervals([[0.1], [0.2]], A),
        r"`anchors` must be an AnchorMatrix, as from .*; got 'list'",
    ),
    "filter": (lambda: leb.filter_queries(None), "`references` must be an AnchorMatrix"),
    "order": (lambda: leb.ordering_violations(3), r"`anchors` must be an AnchorMatrix.*got 'int'"),
    "sweep": (
        lambda: leb.sample_size_sweep("x", A),
        r"`anchors` must be an AnchorMatrix.*got 'str'",
    ),
    "names": (
        lambda: leb.AnchorMatrix.from_probabilities([[0.1], [0.2]], [1, 2]),
        "`names` must be 2 distinct names",
    ),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_other_bad_values(name):
    call, message = NUMBERS[name]
    with pytest.raises(InvalidInputError, match=message):
        call()


@pytest.mark.parametrize("value", [UNPRINTABLE, Mute()], ids=["5000 digits", "no repr"])
def test_what_cannot_be_shown_is_named_by_its_type(value):
    with pytest.raises(InvalidInputError, match=r"got a value of type (int|Mute) that cannot be"):
        leb.bayes_at_n(A, value)


# -- interim analyses ---------------------------------------------------------------------------


LOOKERS = [
    leb.WidthReached(0.9),
    leb.DecisionReached(),
    leb.BudgetSpent(8),
    leb.AnyOf([leb.BudgetSpent(100)]),
]


@pytest.mark.parametrize("rule", LOOKERS, ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("trials", [7, 9, 64])
def test_a_look_at_another_number_of_trials(rule, trials):
    message = rf'`trials` must be .*posteriors rest on \(8 for "a"\); got {trials}'
    with pytest.raises(InvalidInputError, match=message):
        rule.evaluate(trials, PAIR)
    assert rule.evaluate(8, PAIR).trials == 8


@pytest.mark.parametrize("fit", [leb.bayes_at_n, leb.hbayes_at_n], ids=["bayes", "hbayes"])
def test_a_look_counts_no_prior_trials(fit):
    with_prior = leb.Outcomes.from_counts([[3, 5], [6, 2]], prior_counts=[[1, 3], [0, 2]])
    posterior = fit(with_prior)
    assert posterior.n_trials == 11
    rule = leb.WidthReached(0.9)
    assert rule.evaluate(8, {"a": posterior}).trials == 8
    with pytest.raises(InvalidInputError, match=r'rest on \(8 for "a"\); got 11'):
        rule.evaluate(11, {"a": posterior})


@pytest.mark.parametrize("scope", ["benchmark", "population"])
@pytest.mark.parametrize("weights", [None, [0, 0.3, 1]], ids=["binary", "rubric"])
def test_a_look_may_be_anywhere_among_ragged_trials(scope, weights):
    counts = [[3, 5], [6, 0], [4, 4]] if weights is None else [[3, 4, 1], [6, 0, 0], [4, 2, 2]]
    posterior = leb.hbayes_at_n(leb.Outcomes.from_counts(counts, weights), scope)
    assert posterior.trials_range == (6, 8)
    rule = leb.WidthReached(1e-3)
    for trials in (6, 7, 8):
        assert not rule.evaluate(trials, {"a": posterior}).stop
    for trials in (5, 9):
        with pytest.raises(InvalidInputError, match=rf'\(6 to 8 for "a"\); got {trials}'):
            rule.evaluate(trials, {"a": posterior})


def test_a_look_at_the_pass_family_and_at_what_knows_no_trials():
    rule = leb.WidthReached(1e-3)
    with pytest.raises(InvalidInputError, match=r'rest on \(8 for "a"\); got 9'):
        rule.evaluate(9, {"a": leb.pass_at_k_posterior(A, 3)})
    clustered = leb.clustered_posterior(A)
    assert clustered.trials_range is None
    assert not rule.evaluate(9, {"a": clustered}).stop


# -- what the sentences say ------------------------------------------------------------------


def test_anchors_out_of_order_are_told_where_to_go():
    message = r'weakest first; AnchorMatrix\.from_probabilities\(\.\.\., order="ability"\) sorts'
    with pytest.raises(InvalidInputError, match=message):
        leb.AnchorMatrix(np.array([[0.9], [0.1]]), ("a", "b"))
    assert leb.AnchorMatrix.from_probabilities([[0.9], [0.1]], order="ability").n_anchors == 2


@pytest.mark.parametrize("width", [2, 3], ids=["binary", "rubric"])
@pytest.mark.parametrize("scope", ["benchmark", "population"])
def test_no_trial_is_not_one_trial(width, scope):
    nothing = leb.hbayes_at_n(leb.Outcomes.from_counts(np.zeros((3, width), int)), scope)
    assert NO_TRIALS in nothing.note
    assert PRIOR_ALONE not in nothing.note
    once = leb.hbayes_at_n(leb.Outcomes.from_counts(np.eye(width, dtype=int)), scope)
    assert (once.note is not None and PRIOR_ALONE in once.note) == (scope == "benchmark")


# -- results ---------------------------------------------------------------------------------


def all_posteriors():
    for outcomes, kind in ((A, "binary"), (RUBRIC, "rubric")):
        yield f"bayes, {kind}", leb.bayes_at_n(outcomes)
        for scope in ("benchmark", "population"):
            yield f"hbayes, {kind}, {scope}", leb.hbayes_at_n(outcomes, scope, 0.9)
            if kind == "binary":
                yield f"compare, {scope}", leb.compare(A, B, scope).posterior
    yield "pass@k", leb.pass_at_k_posterior(A, 3)
    yield "clustered", leb.clustered_posterior(A)


POSTERIORS = dict(all_posteriors())


@pytest.mark.parametrize("name", POSTERIORS)
def test_a_posterior_brings_its_interval_into_json(name):
    posterior = POSTERIORS[name]
    plain = json.loads(json.dumps(posterior.to_dict(), allow_nan=False))
    interval = posterior.interval()
    assert plain["interval"] == interval.to_dict()
    found = plain["interval"]
    assert (found["level"], found["method"]) == (posterior.level, posterior.method)
    assert found["low"] < posterior.mu < found["high"]
    assert plain == posterior.to_dict()
    chosen = posterior.interval(0.5, "normal")
    assert posterior.to_dict(chosen)["interval"] == chosen.to_dict()


def arrays_of(record, seen):
    """Yield every array that can be reached from a record's attributes."""
    if id(record) in seen:
        return
    seen.add(id(record))
    for value in vars(record).values():
        if isinstance(value, np.ndarray):
            yield value
        elif hasattr(value, "__dict__") and not isinstance(value, type):
            yield from arrays_of(value, seen)


@pytest.mark.parametrize("name", POSTERIORS)
def test_nobody_can_write_into_a_distribution(name):
    posterior = POSTERIORS[name]
    posterior.interval()
    arrays = list(arrays_of(posterior, set()))
    assert len(arrays) > 2
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


SEED = np.int64(1)
N = np.int64(2)
AS_NUMPY = {
    "prior_study": lambda: leb.prior_study(
        np.array([0, 1]),
        np.array([1, 2]),
        means=np.array([0.25, 0.5], dtype=np.float32),
        n_questions=np.int32(5),
        replicates=np.int64(5),
        seed=SEED,
    ),
    "pass": lambda: leb.pass_at_k(A, N),
    "pass posterior": lambda: leb.pass_at_k_posterior(A, N, np.float32(1)),
    "g-pass": lambda: leb.g_pass_at_k(A, N, np.float32(0.5)),
    "g-pass, fraction": lambda: leb.g_pass_at_k_posterior(A, N, Fraction(1, 2)),
    "maj": lambda: leb.maj_at_k([["7", "8"]], np.array([[True, False]]), N, seed=SEED),
    "maj posterior": lambda: leb.maj_at_k_posterior(
        [["7", "8"]], np.array([[True, False]]), N, seed=SEED, draws=np.int64(100)
    ),
    "hbayes": lambda: leb.hbayes_at_n(RUBRIC, level=np.float32(0.9), seed=SEED),
    "interval": lambda: leb.bayes_at_n(RUBRIC).interval(seed=SEED, draws=np.int64(1000)),
    "rank": lambda: leb.rank(PAIR, confidence=np.float32(0.9), seed=SEED, draws=np.int64(1000)),
    "compare": lambda: leb.compare(A, B, rope=np.float32(0.1), seed=SEED, draws=np.int64(1000)),
    "curves": lambda: leb.compare_pass_curves(
        A, B, np.array([1, 2]), seed=SEED, draws=np.int64(100)
    ),
    "paired": lambda: leb.compare_paired(ONCE, ONCE, seed=SEED, draws=np.int64(1000)),
    "confusion": lambda: leb.confusion_posterior(
        np.array(CELLS), zero_division=np.float32(0), draws=np.int64(1000), seed=SEED
    ),
    "confidence": lambda: leb.confusion_confidence(
        np.array(CELLS), method="bootstrap", replicates=np.int64(100), seed=SEED
    ),
    "bootstrap": lambda: leb.bootstrap_interval(
        np.array([1, 0]), replicates=np.int64(100), seed=SEED, bounds=(np.int64(0), np.int64(1))
    ),
    "odds": lambda: leb.odds_ratio_interval(N, np.int64(5), N, np.int64(5)),
    "convergence": lambda: leb.convergence_at_n(
        TENSOR, "g-pass", k=N, tau=np.float32(0.5), replicates=np.int64(5), seed=SEED
    ),
    "curve": lambda: leb.kendall_curve(
        TENSOR, np.array([1, 2]), "pass@k", k=N, replicates=np.int64(5), seed=SEED
    ),
    "sweep": lambda: leb.sample_size_sweep(
        ANCHORS, A, np.array([1, 2]), replicates=np.int64(5), seed=SEED
    ),
    "independence": lambda: leb.query_independence(TENSOR, permutations=np.int64(100), seed=SEED),
    "forecast": lambda: leb.trials_needed(
        POSTERIOR,
        width=np.float32(0.2),
        max_trials=np.int64(100),
        draws=np.int64(100),
        seed=SEED,
    ),
    "look": lambda: leb.WidthReached(np.float32(0.9)).evaluate(np.int64(8), {"a": POSTERIOR}),
    "budget": lambda: leb.BudgetSpent(np.int64(8)).evaluate(np.int64(8), {"a": POSTERIOR}),
}


@pytest.mark.parametrize("name", AS_NUMPY)
def test_numpy_numbers_become_json(name):
    plain = AS_NUMPY[name]().to_dict()
    assert json.loads(json.dumps(plain)) == plain


# -- settings of a run -------------------------------------------------------------------------


def test_categories_that_the_grader_cannot_tell_apart():
    message = "`bayes_categories` must be 2 or left out, as the outcome metric has 2 categories"
    with pytest.raises(InvalidInputError, match=message):
        Settings.from_metadata({"bayes_categories": 3}, 4, 2)
    assert Settings.from_metadata({"bayes_categories": 2}, 4, 2).weights == (0.0, 1.0)
    # a task's own grader may use the metric's name for more
    own = Settings.from_metadata({"bayes_categories": 3}, 4, 2, certain=False)
    assert own.weights == (0.0, 0.5, 1.0)
