"""The mimic: its arguments, its draws, its answers and the truth that it records."""

from __future__ import annotations

import json
import logging
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from _support import toy
from _support.errors import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from lm_eval.api.instance import Instance
from scipy import stats

import lm_eval_bayes as lb
from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness.evaluation import new_instance
from lm_eval_bayes.harness.models.biased_coin.model import BiasedCoinLM
from lm_eval_bayes.harness.models.biased_coin.responses import SHARES, uniforms, wrong_answers
from lm_eval_bayes.harness.models.trials import TrialsLM
from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask


def request(
    doc_id: int, n: int = 1, task: str = "quiz", answer: Any = "12", prompt: str | None = None
) -> Instance:
    prompt = f"question {doc_id}" if prompt is None else prompt
    arguments = (prompt, {"until": [], "temperature": 1.0})
    return new_instance({"answer": answer}, arguments, task=task, doc_id=doc_id, repeats=n)


def clones(requests: list[Instance]) -> list[Instance]:
    """What the harness sends: every request N times, the very same object."""
    return [r for r in requests for _ in range(r.repeats or 1)]


def answers(responses: list[str]) -> list[str]:
    return [re.search(r"\$\\boxed\{(.*)\}\$\.$", text)[1] for text in responses]  # type: ignore[index]


# -- arguments ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "broken"),
    [
        ({}, ("p, beta", "conflict")),
        ({"p": 0.5, "beta": "1:1"}, ("p, beta", "conflict")),
        ({"p": float("nan")}, ("p", "range")),
        ({"p": True}, ("p", "range", True)),
        ({"beta": "0:1"}, ("beta", "format", "0:1")),
        ({"beta": "1:inf"}, ("beta", "format", "1:inf")),
        ({"beta": 123}, ("beta", "format", 123)),
        ({"p": 0.5, "seed": 1.5}, ("seed", "type", 1.5)),
        ({"p": 0.5, "boxed": 2}, ("boxed", "range", 2)),
        ({"p": 0.5, "answer_field": 7}, ("answer_field", "type", 7)),
        ({"p": 0.5, "prob": 0.5}, ("prob", "unknown-key", 0.5)),
    ],
)
def test_bad_arguments_are_refused_at_construction(arguments: dict[str, Any], broken: Any) -> None:
    with refused(*broken, error=ModelConfigError):
        BiasedCoinLM(**arguments)


# -- draws -------------------------------------------------------------------------------


def test_draws_are_right_with_the_asked_probability() -> None:
    lm = BiasedCoinLM(p=0.3)
    got = answers(lm.generate_until(clones([request(i, 20) for i in range(100)])))
    # 2,000 seeded draws; the bounds hold 99.99% of Binomial(2000, 0.3)
    low, high = stats.binom.ppf([5e-5, 1 - 5e-5], 2000, 0.3)
    assert low <= sum(a == "12" for a in got) <= high


def test_the_default_seed_is_that_of_model_trials_too(tmp_path: Path) -> None:
    requests = clones([request(i, 4) for i in range(10)])
    lm = TrialsLM(backend="biased_coin", store=str(tmp_path / "c.sqlite"), p=0.5)
    stored = lm.generate_until(requests)
    assert stored == BiasedCoinLM(p=0.5, seed=1).generate_until(requests)
    assert lm.get_model_info()["trials"]["seed"] == 1


def test_trials_of_a_question_are_independent() -> None:
    lm = BiasedCoinLM(p=0.5)
    got = answers(lm.generate_until(clones([request(i, 2) for i in range(600)])))
    right = [a == "12" for a in got]
    table = Counter(zip(right[::2], right[1::2], strict=True))
    square = [[table[a, b] for b in (False, True)] for a in (False, True)]
    assert stats.chi2_contingency(square).pvalue > 0.001


def test_a_question_that_stands_twice_gets_its_own_draws() -> None:
    twice = [request(0, 30, prompt="same"), request(1, 30, prompt="same")]
    got = BiasedCoinLM(p=0.5).generate_until(clones(twice))
    assert got[:30] != got[30:]
    assert got == BiasedCoinLM(p=0.5).generate_until(clones([request(0, 60, prompt="same")]))


def test_beta_law_draws_from_the_beta_distribution() -> None:
    lm = BiasedCoinLM(beta="0.2:2")
    drawn = [lm.question_of(request(i)).p for i in range(2000)]
    assert stats.kstest(drawn, stats.beta(0.2, 2).cdf).pvalue > 0.001
    assert all(0.0 <= p <= 1.0 for p in drawn)


@settings(max_examples=25)
@given(st.randoms(use_true_random=False), st.integers(1, 12))
def test_neither_order_nor_limit_changes_a_question(rnd: random.Random, limit: int) -> None:
    everything = [request(i, 3) for i in range(12)]
    complete, part = BiasedCoinLM(beta="1:1"), BiasedCoinLM(beta="1:1")
    responses = complete.generate_until(clones(everything))
    responses_of = {i: responses[3 * i : 3 * i + 3] for i in range(12)}

    some = rnd.sample(everything, limit)
    retold = part.generate_until(clones(some))
    for at, question in enumerate(some):
        assert retold[3 * at : 3 * at + 3] == responses_of[question.doc_id]
    true_p = complete.get_model_info()["biased_coin"]["true_p"]["quiz"]
    for doc_id, p in part.get_model_info()["biased_coin"]["true_p"]["quiz"].items():
        assert p == true_p[doc_id]


def test_draws_are_those_of_every_process() -> None:
    """Recorded once: they depend on the key alone."""
    drawn = uniforms("trial", 7, "quiz", "Wie viel ist 3²?", 4)
    assert drawn == (
        0.05950031508926201,
        0.31756944275547727,
        0.4667002148531324,
        0.7036047585382482,
    )


def test_another_seed_gives_other_draws() -> None:
    right = []
    for seed in (1, 2):
        responses = BiasedCoinLM(p=0.5, seed=seed).generate_until(clones([request(0, 40)]))
        right.append([answer == "12" for answer in answers(responses)])
    assert right[0] != right[1]


class _Rank(BiasedCoinLM):
    """One of two ranks; what rank 1 sent is there when rank 0 gathers."""

    sent: list[Any] = []  # noqa: RUF012 -- shared on purpose

    def __init__(self, rank: int) -> None:
        super().__init__(beta="2:2")
        self._rank, self._world_size = rank, 2

    def gather_object(self, obj: Any, dst: int = 0) -> Any:
        self.sent.append(obj)
        return list(self.sent) if self.rank == dst else None


def test_two_ranks_tell_what_one_tells() -> None:
    requests = [request(i, 4) for i in range(5)]
    alone = BiasedCoinLM(beta="2:2")
    responses = alone.generate_until(clones(requests))
    ranks = [_Rank(0), _Rank(1)]
    # the short rank is padded with its last request, as the harness does
    second = ranks[1].generate_until(clones([*requests[1::2], requests[3]]))
    first = ranks[0].generate_until(clones(requests[0::2]))
    assert first == responses[0:4] + responses[8:12] + responses[16:20]
    assert second[:8] == responses[4:8] + responses[12:16]
    assert ranks[0].get_model_info() == alone.get_model_info()


# -- the truth ---------------------------------------------------------------------------


def test_intervals_hold_the_recorded_truth_as_often_as_they_say() -> None:
    # Under a Beta(1, 1) law the paper's prior is the truth, so 95% intervals hold in 95%.
    held = 0
    for seed in range(50):
        lm = BiasedCoinLM(beta="1:1", seed=seed)
        got = answers(lm.generate_until(clones([request(i, 4) for i in range(20)])))
        right = [sum(a == "12" for a in got[4 * i : 4 * i + 4]) for i in range(20)]
        outcomes = lb.Outcomes.from_counts([[4 - c, c] for c in right])
        interval = lb.bayes_at_n(outcomes).interval(level=0.95, method="normal")
        truth = lm.get_model_info()["biased_coin"]["true_score"]["quiz"]
        held += interval.low <= truth <= interval.high
    assert 43 <= held <= 50


# -- answers -----------------------------------------------------------------------------

GOLDS = [
    *("70", "033", "0", "999", "-984", "1,024", "12345678901234567890", "3.5", ".25", "B", "J"),
    *(r"\frac{1}{9}", r"3+2\sqrt{2}", r"2^{25} \cdot 26!", r"20\pi", "x=5", r"1-\frac{2}{\pi}"),
    *(r"2,3,\frac{3+i\sqrt{3}}{2}", r"\left(1, \sqrt{2}\right)", r"[0, \infty)", r"\{1, 2\}"),
]


@pytest.mark.parametrize("gold", GOLDS)
def test_wrong_answers_are_four_and_wrong(gold: str) -> None:
    from math_verify import parse, verify

    right = parse(rf"\boxed{{{gold}}}")
    for turn in (0, 4):  # every candidate
        wrong = wrong_answers(gold, turn)
        assert len(wrong) == len(set(wrong)) == 4
        for answer in wrong:
            assert answer != gold
            assert not verify(right, parse(rf"\boxed{{{answer}}}"))


@pytest.mark.parametrize("name", ["aime_2025", "hmmt_feb_2025"])
def test_wrong_answers_are_wrong_for_every_contest_question(name: str, shared: Path) -> None:
    from math_verify import parse, verify

    path = shared / "data" / "contests" / f"{name}.jsonl"
    for line in path.read_text(encoding="utf-8").splitlines():
        gold = str(json.loads(line)["answer"])
        right = parse(rf"\boxed{{{gold}}}")
        for answer in wrong_answers(gold):
            assert not verify(right, parse(rf"\boxed{{{answer}}}")), (gold, answer)


@given(st.integers(-(10**6), 10**6), st.integers(0, 7))
def test_wrong_integers_keep_the_shape_of_the_right_one(gold: int, turn: int) -> None:
    wrong = [int(a) for a in wrong_answers(str(gold), turn)]
    assert gold not in wrong
    assert len(set(wrong)) == 4
    if gold >= 0:
        assert min(wrong) >= 0
    if abs(gold) <= 999:
        assert max(map(abs, wrong)) <= 999


def test_mistakes_have_unequal_shares() -> None:
    got = Counter(answers(BiasedCoinLM(p=0.0).generate_until(clones([request(0, 1500)]))))
    expected = [1500 * share for share in SHARES]
    seen = [count for _, count in got.most_common()]
    assert stats.chisquare(seen, expected).pvalue > 0.001
    assert sum(SHARES) == pytest.approx(1.0, abs=1e-15)


def test_unboxed_answers_stand_in_prose() -> None:
    responses = BiasedCoinLM(p=1.0, boxed=0.25).generate_until(clones([request(0, 500)]))
    boxed = [r"\boxed" in text for text in responses]
    low, high = stats.binom.ppf([5e-5, 1 - 5e-5], 500, 0.25)
    assert low <= sum(boxed) <= high
    for text, box in zip(responses, boxed, strict=True):
        # the answer is the only number, so that any grader finds it
        assert re.findall(r"\d+", text) == ["12"]
        assert box or text.endswith("the final answer is $12$. I hope it is correct.")
        assert "\n" not in text
    assert len({len(text) for text in responses}) > 5


@pytest.mark.parametrize("gold", [12, " $12$ ", ["12"]])
def test_gold_answers_of_many_types(gold: Any) -> None:
    responses = BiasedCoinLM(p=1.0).generate_until([request(0, answer=gold)])
    assert float(answers(responses)[0]) == 12


@pytest.mark.parametrize("gold", ["", True, ["1", "2"], "First add.\nThen #### 12", "x" * 201])
def test_a_gold_that_is_no_final_answer_is_refused(gold: Any) -> None:
    lm = BiasedCoinLM(p=1.0)
    with refused("answer", "format", error=ModelConfigError):
        lm.generate_until([request(0), request(4, answer=gold)])
    assert lm.get_model_info()["biased_coin"]["questions"] == {}


def test_a_question_without_the_answer_field_is_refused() -> None:
    with refused("answer_field", "missing-key", "solution", error=ModelConfigError):
        BiasedCoinLM(p=0.5, answer_field="solution").generate_until([request(0)])


def test_log_likelihoods_are_refused() -> None:
    lm = BiasedCoinLM(p=0.5)
    for method in (lm.loglikelihood, lm.loglikelihood_rolling):
        with refused("output_type", "unsupported", "quiz", error=ModelConfigError):
            method([request(0)])


def test_the_true_score_is_stated_where_the_grader_confirms_it(caplog) -> None:
    metric = [{"metric": "complete", "aggregation": "mean", "higher_is_better": True}]
    generous = toy.toy_config(
        task="generous",
        process_results=lambda doc, results: {"complete": 1},
        metric_list=metric,
        repeats=1,
    )
    exact = toy.toy_config(
        task="exact",
        repeats=1,
        filter_list=[{"name": "f", "filter": [{"function": "regex", "regex_pattern": r"(\d+)"}]}],
    )
    lm = BiasedCoinLM(p=0.5)
    for config, stated in ((generous, {}), (exact, {"exact": 0.5})):
        with caplog.at_level(logging.INFO):
            results = toy.evaluate(lm, RepeatedSamplingTask(config=config))
        assert results["config"]["biased_coin"]["true_score"] == stated
    assert results["config"]["biased_coin"]["true_p"]["exact"] == {"0": 0.5, "1": 0.5, "2": 0.5}
    assert "generous: the true score is not known" in caplog.text
    assert "generous: the true score, which" not in caplog.text
