"""Metrics and aggregations of this package in YAMLs that keep the harness's own task class."""

from __future__ import annotations

import math
import pickle
from itertools import combinations
from statistics import mean

import datasets
import pytest
from _support.errors import refused
from _support.toy import QUESTIONS, SCRIPT, ScriptedLM, all_rows, evaluate, toy_config
from lm_eval.api.model import LM
from lm_eval.api.registry import get_aggregation, get_metric, get_metric_aggregation
from lm_eval.api.task import ConfigurableTask
from scipy.stats import beta

from lm_eval_bayes.errors import InvalidInputError, TaskConfigError
from lm_eval_bayes.harness.grading.grade import process_results_math
from lm_eval_bayes.harness.plugin import aggregations, metrics, registration
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.score_outcomes import ScoreOutcomes

pytestmark = pytest.mark.filterwarnings("default")

#: Right answers of four, question by question, as the script gives them.
RIGHT = [3, 1, 0]
OWN = {"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}


def filters(*functions):
    return [{"name": "none", "filter": [{"function": function} for function in functions]}]


@pytest.fixture(autouse=True)
def _installed():
    registration.register_all()


def bayes_config(options=None, **changes):
    metric = {"metric": "bayes", "aggregation": "bayes", "higher_is_better": True}
    metric["interval"] = "normal"
    return toy_config(**{"metric_list": [{**metric, **(options or {})}], **changes})


def row_of(config, script=SCRIPT, **options):
    model = ScriptedLM(script)
    results = evaluate(model, ConfigurableTask(config=config), **options)
    more = all_rows(results) if "toy" in results.get("posterior", {}) else {}
    return {**more, **results["results"]["toy"]}


def aggregated(aggregation, metric="exact_match", **options):
    entry = {**OWN, "metric": metric, "aggregation": aggregation, **options}
    return toy_config(metric_list=[entry])


BOTH = [{**OWN, "metric": m, "aggregation": "bayes"} for m in ("bayes", "credible_interval")]


# -- metric: bayes -------------------------------------------------------------------------------


def both_metrics():
    config = bayes_config()
    listed = config["metric_list"]
    return {**config, "metric_list": [*listed, {**listed[0], "metric": "credible_interval"}]}


def test_the_metric_gives_the_same_rows_as_the_class():
    results = evaluate(ScriptedLM(SCRIPT), ConfigurableTask(config=bayes_config()))
    row = all_rows(results)
    assert row["bayes@4,none"] == pytest.approx((4 / 6 + 2 / 6 + 1 / 6) / 3)
    assert row["bayes@4_stderr,none"] > 0
    assert row["pass@2,none"] == pytest.approx(0.5)
    assert row["maj@4,none"] == pytest.approx(1 / 3)
    assert results["higher_is_better"]["toy"]["pass@4"] is True
    assert results["higher_is_better"]["toy"]["grading_error_share"] is False
    sample = results["samples"]["toy"][1]
    assert sample["outcomes"] == [0, 1, 0, 0]
    assert sample["answers"] == SCRIPT["2 + 2 ="]


def test_its_options_are_the_settings_and_process_results_is_the_grader():
    metric = {**bayes_config()["metric_list"][0], "k": [3], "maj_k": 2}
    config = bayes_config(metric_list=[OWN, metric], process_results=process_results_math)
    script = {key: [r"\boxed{2}", r"\boxed{1}", "none", r"\boxed{2.0}"] for key in SCRIPT}
    row = row_of(config, script)
    assert {"pass@3,none", "maj@2,none"} <= set(row)
    assert row["avg@4,none"] == pytest.approx(2 / 12)
    assert row["exact_match,none"] == pytest.approx(1 / 3)
    assert "answer,none" not in row


def test_bayes_n_sets_n_of_the_metric_too():
    row = row_of(bayes_config(metadata={"bayes_n": 2}))
    assert row["avg@2,none"] == pytest.approx((2 + 1 + 0) / 6)


def test_sampling_settings_are_checked_before_sampling():
    model = ScriptedLM(SCRIPT)
    with pytest.raises(TaskConfigError):
        evaluate(model, ConfigurableTask(config=bayes_config()), gen_kwargs="temperature=0.0")
    assert not model.requests


@pytest.mark.parametrize(
    ("config", "argument", "rule"),
    [
        (bayes_config(filter_list=filters("majority_vote")), "filter_list", "unsupported"),
        (bayes_config(unsafe_code=True), "metric_list", "unsupported"),
        (bayes_config({"levle": 0.9}), "bayes", "unknown-key"),
        (bayes_config({"grader": "math"}), "bayes", "unknown-key"),
        (bayes_config({"aggregation": "mean"}), "aggregation", "choice"),
        (bayes_config({"k": 9}), "bayes_k", "range"),
        (both_metrics(), "metric_list", "conflict"),
        (aggregated("pass_at_k"), "k", "missing"),
        (aggregated("pass_at_k", k=9), "k", "range"),
        (aggregated("g_pass_at_k", k=2, tau=2), "tau", "range"),
        (aggregated("bayes", scope="all"), "scope", "choice"),
        (aggregated("bayes", level=0.5), "metric_list", "unknown-key"),
        (aggregated("bayes", bounds=[0, float("inf")]), "bounds", "range"),
        (aggregated("bayes", metric="bleu"), "aggregation", "unsupported"),
    ],
)
def test_a_trap_ends_in_a_clear_error_before_sampling(config, argument, rule):
    model = ScriptedLM(SCRIPT)
    with refused(argument, rule, error=(TaskConfigError, InvalidInputError)):
        evaluate(model, ConfigurableTask(config=config), confirm_run_unsafe_code=True)
    assert not model.requests


def test_the_task_s_own_filter_and_metric_grade_every_response_and_keep_their_row(caplog):
    steps = [{"function": "regex", "regex_pattern": r"is (\S+)"}, {"function": "take_first"}]
    exact_match = {**OWN, "regexes_to_ignore": [","]}
    listed = [exact_match, bayes_config()["metric_list"][0]]
    script = {
        "1 + 1 =": ["it is 2", "it is ,2", "it is 3", "well"],
        "2 + 2 =": ["it is 5", "so it is 5", "it is 4", "well"],
        "3 + 3 =": ["it is 1,0", "is 10", "it is 6", "it is 6"],
    }
    own_filter = [{"name": "f", "filter": steps}]
    plain = row_of(toy_config(metric_list=[exact_match], filter_list=own_filter), script)
    row = row_of(bayes_config(metric_list=listed, filter_list=own_filter), script)
    assert row["avg@4,f"] == pytest.approx((2 + 1 + 2) / 12)
    assert row["maj@4,f"] == pytest.approx((1 + 0 + 0.5) / 3)  # "well" abstains; 1,0 is 10
    assert row["exact_match,f"] == plain["exact_match,f"] == pytest.approx(1 / 3)
    assert "graded 0" not in caplog.text


def test_all_zero_is_warned_of_with_its_cause(caplog):
    row_of(bayes_config(), {prompt: ["The answer is 2.", "So it is 4."] for prompt in SCRIPT})
    assert (
        "task toy, filter none: all 12 trials are graded 0; no filter extracts the answer, and "
        "exact_match compares all of a response, such as 'The answer is 2.'" in caplog.text
    )


def test_own_graders_and_several_targets_grade_every_response():
    def graded(doc, results):
        return {"right": int(results[0] == doc["answer"])}

    listed = [{**OWN, "metric": "right"}, bayes_config()["metric_list"][0]]
    row = row_of(bayes_config(metric_list=listed, process_results=graded))
    assert row["avg@4,none"] == pytest.approx(4 / 12)
    assert row["right,none"] == pytest.approx(1 / 3)
    row = row_of(bayes_config(doc_to_target=lambda doc: [doc["answer"], "x"]))
    assert row["avg@4,none"] == pytest.approx(5 / 12)


def test_the_metric_bayes_of_scores_is_the_posterior_of_scores():
    def graded(doc, results):
        return {"score": 0.25 + (results[0] == doc["answer"]) / 2}

    listed = [{**OWN, "metric": "score"}, bayes_config()["metric_list"][0]]
    config = bayes_config(metric_list=listed, process_results=graded)
    row = row_of(config)
    assert row["score,none"] == pytest.approx((0.75 + 0.25 + 0.25) / 3)
    scores = [[0.75] * right + [0.25] * (4 - right) for right in RIGHT]
    posterior = hbayes_at_n(ScoreOutcomes.from_scores(scores))
    assert row["hbayes@4,none"] == pytest.approx(posterior.mu)
    assert row["hbayes@4_stderr,none"] == pytest.approx(posterior.sigma)
    assert "bayes@4,none" not in row


def test_bounds_and_threshold_stand_beside_the_metric_bayes():
    def graded(doc, results):
        return {"score": 1 + 9 * (results[0] == doc["answer"])}

    metric = {**bayes_config()["metric_list"][0], "bounds": [1, 10], "threshold": 5}
    listed = [{**OWN, "metric": "score"}, metric]
    row = row_of(bayes_config(metric_list=listed, process_results=graded))
    assert row["avg@4,none"] == pytest.approx(1 + 9 * 4 / 12)
    assert row["pass@4,none"] == pytest.approx(2 / 3)


def test_a_grader_that_fails_counts_as_wrong(caplog):
    def graded(doc, results):
        return {"right": int(results[0]) == int(doc["answer"])}

    listed = [{**OWN, "metric": "right"}, bayes_config()["metric_list"][0]]
    row = row_of(bayes_config(metric_list=listed, process_results=graded))
    assert row["grading_error_share,none"] == 1 / 12
    assert row["avg@4,none"] == pytest.approx(4 / 12)
    assert caplog.text.count("grading failed") == 1


def test_a_lone_surrogate_is_logged():
    script = {**SCRIPT, "1 + 1 =": ["2", "\udc80", "2", "2"]}
    results = evaluate(ScriptedLM(script), ConfigurableTask(config=bayes_config()))
    assert results["samples"]["toy"][0]["resps"] == [["2", "?", "2", "2"]]


def test_one_trial_is_bayes_at_1():
    row = row_of(bayes_config(repeats=1))
    assert row["avg@1,none"] == pytest.approx(1 / 3)
    assert row["bayes@1,none"] == pytest.approx((2 + 1 + 1) / 9)


def test_credible_interval_has_the_ends_of_its_level():
    rows = {}
    for level in (0.5, 0.9):
        entry = {"metric": "credible_interval", "aggregation": "bayes", "higher_is_better": True}
        rows[level] = row_of(toy_config(metric_list=[{**entry, "level": level}]))
    names = {key for key in rows[0.9] if key.endswith(",none") and "_stderr" not in key}
    assert names == {f"{h}bayes@4_{end},none" for h in ("", "h") for end in ("low", "high")}
    outcomes = Outcomes.from_counts([[4 - c, c] for c in RIGHT])
    for level, row in rows.items():
        interval = hbayes_at_n(outcomes).interval(level, "exact")
        found = row["hbayes@4_low,none"], row["hbayes@4_high,none"]
        assert found == pytest.approx((interval.low, interval.high))


def test_the_functions_grade_by_themselves_where_the_harness_calls_them():
    rows = metrics.bayes(references=["2"], predictions=[["2", "3"]])
    assert metrics.bayes(references=["2"], predictions=["2"]).keys() >= {"avg@1"}
    assert rows["avg@2"] == 0.5
    assert aggregations.bayes([rows["avg@2"]]) == 0.5
    assert "avg@2" not in metrics.credible_interval(references=["2"], predictions=[["2", "3"]])
    assert metrics.rubric(references=["2"], predictions=[["2", "3"]]) == {}


def test_a_metric_without_aggregation_has_its_default():
    config = bayes_config()
    del config["metric_list"][0]["aggregation"]
    assert row_of(config)["avg@4,none"] == pytest.approx(4 / 12)
    assert get_metric_aggregation("bayes") is get_aggregation("bayes") is aggregations.bayes
    assert get_metric("bayes") is metrics.bayes


# -- aggregations --------------------------------------------------------------------------------


def subsets(k, count):
    """Mean over questions of a function of the right answers among all k of four trials."""
    marks = [[text == q["answer"] for text in SCRIPT[q["question"]]] for q in QUESTIONS]
    return mean(mean(count(sum(chosen)) for chosen in combinations(row, k)) for row in marks)


@pytest.mark.parametrize(
    ("aggregation", "options", "expected"),
    [
        ("avg_at_n", {}, 4 / 12),
        ("pass_at_k", {"k": 2}, subsets(2, lambda right: right >= 1)),
        ("pass_hat_k", {"k": 2}, subsets(2, lambda right: right == 2)),
        ("g_pass_at_k", {"k": 4, "tau": 0.75}, subsets(4, lambda right: right >= 3)),
        ("g_pass_at_k", {"k": 3}, subsets(3, lambda right: right >= 2)),
        ("mg_pass_at_k", {"k": 3}, subsets(3, lambda right: 2 / 3 * max(right - 2, 0))),
        ("maj_at_k", {"k": 4}, 1 / 3),
    ],
)
def test_an_aggregation_under_the_task_s_own_metric(aggregation, options, expected):
    row = row_of(aggregated(aggregation, **options))
    assert row["exact_match,none"] == pytest.approx(expected)
    assert (row["exact_match_stderr,none"] == "N/A") is (aggregation != "avg_at_n")


@pytest.mark.parametrize("scope", ["population", "benchmark"])
def test_aggregation_bayes_is_the_posterior_of_all_trials(scope):
    row = row_of(aggregated("bayes", scope=scope))
    posterior = hbayes_at_n(Outcomes.from_counts([[4 - c, c] for c in RIGHT]), scope)
    assert row["exact_match,none"] == pytest.approx(posterior.mu)
    assert row["exact_match_stderr,none"] == pytest.approx(posterior.sigma)


def test_aggregation_bayes_of_scores_between_bounds():
    def graded(doc, results):
        return {"score": 10 * len(results[0]) + (results[0] == doc["answer"])}

    entry = {**OWN, "metric": "score", "aggregation": "bayes", "bounds": [0, 20]}
    row = row_of(toy_config(metric_list=[entry], process_results=graded))
    scores = [
        [10 * len(text) + (text == q["answer"]) for text in SCRIPT[q["question"]]]
        for q in QUESTIONS
    ]
    posterior = hbayes_at_n(ScoreOutcomes.from_scores(scores, (0, 20)), "population")
    assert row["score,none"] == pytest.approx(posterior.mu)
    assert row["score_stderr,none"] == pytest.approx(posterior.sigma)


def test_a_question_that_the_task_leaves_out_and_a_failure_of_its_grader():
    def graded(doc, results):
        left_out = doc["answer"] == "6"
        return {} if left_out else {"score": 1 + 9 * (int(results[0]) == int(doc["answer"]))}

    entry = {**OWN, "metric": "score", "aggregation": "avg_at_n", "bounds": [1, 10]}
    row = row_of(toy_config(metric_list=[entry], process_results=graded))
    # 3 and 1 of four are right; "x" fails and has the lowest score
    assert row["score,none"] == pytest.approx(1 + 9 * 4 / 8)


def test_what_is_gathered_over_ranks_keeps_answers():
    values = pickle.loads(pickle.dumps(aggregations.TrialValues([1, 0], ["a", None])))
    assert (values, values.answers) == ([1, 0], ["a", None])


def test_what_has_no_number_is_nan_and_named(caplog):
    def graded(doc, results):
        return {"score": 7.0}

    entry = {**OWN, "metric": "score", "aggregation": "bayes"}
    config = toy_config(metric_list=[entry], process_results=graded)
    results = evaluate(ScriptedLM(SCRIPT), ConfigurableTask(config=config))
    assert math.isnan(results["results"]["toy"]["score,none"])
    assert results["samples"]["toy"][0]["score"] == [7.0] * 4
    assert "aggregation bayes has no number" in caplog.text


def test_a_vote_without_answers_has_no_number(caplog):
    def graded(doc, results):
        return {"right": int(results[0] == doc["answer"])}

    entry = {**OWN, "metric": "right", "aggregation": "maj_at_k", "k": 2}
    assert math.isnan(row_of(toy_config(metric_list=[entry], process_results=graded))["right,none"])
    assert "aggregation maj_at_k has no number" in caplog.text


class ChoosingLM(LM):
    """Takes the first choice of every question."""

    def loglikelihood(self, requests, disable_tqdm=False):
        return [(-1.0 - request.idx, False) for request in requests]

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        raise AssertionError("only choices are asked for")

    generate_until = loglikelihood_rolling


@pytest.mark.parametrize("n_right", [9, 5])
def test_aggregation_bayes_of_a_multiple_choice_task(n_right):
    docs = [{"question": f"{i}?", "gold": int(i >= n_right)} for i in range(12)]
    data = datasets.Dataset.from_list(docs)
    entries = [
        {"metric": "acc", "aggregation": "bayes", "higher_is_better": True},
        {"metric": "acc_norm", "aggregation": "mean", "higher_is_better": True},
    ]
    config = toy_config(
        custom_dataset=lambda **_: {"test": data},
        output_type="multiple_choice",
        doc_to_target="gold",
        doc_to_choice=["yes", "no"],
        metric_list=entries,
        generation_kwargs=None,
        repeats=1,
    )
    results = evaluate(ChoosingLM(), ConfigurableTask(config=config))
    row = results["results"]["toy"]
    assert row["acc_norm,none"] == pytest.approx(n_right / 12)
    # one trial a question: close to Beta(.7 + S, .7 + M - S)
    near = beta(0.7 + n_right, 0.7 + 12 - n_right)
    assert row["acc,none"] == pytest.approx(near.mean(), abs=0.01)
    assert row["acc_stderr,none"] == pytest.approx(near.std(), rel=0.1)
    assert [sample["acc"] for sample in results["samples"]["toy"]][:1] == [1.0]
