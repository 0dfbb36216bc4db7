"""`bayes_prior`: an earlier run named by a task is prior evidence for its row hbayes@N."""

from __future__ import annotations

import numpy as np
import pytest
from _support.errors import refused
from _support.run_files import row, write_run
from _support.toy import QUESTIONS, SCRIPT, ScriptedLM, evaluate, toy_config

from lm_eval_bayes.errors import TaskConfigError
from lm_eval_bayes.harness.models.trials import TrialsLM
from lm_eval_bayes.harness.task.repeated_sampling import RepeatedSamplingTask
from lm_eval_bayes.harness.task.requests import doc_hash
from lm_eval_bayes.runs.reader import read_runs
from lm_eval_bayes.stats.hierarchical.hbayes_at_n import hbayes_at_n
from lm_eval_bayes.stats.outcomes import Outcomes
from lm_eval_bayes.stats.prior_evidence import SAME_CHANCES, prior_evidence

pytestmark = pytest.mark.filterwarnings("default")

#: Right answers of four to the three questions, and of eight by the earlier run, which lacks one.
RIGHT, EARLIER = np.array([3, 1, 0]), {0: 7, 2: 1}


@pytest.fixture
def earlier(tmp_path):
    rows = [
        {
            **row(i, outcomes=[1] * right + [0] * (8 - right), doc=QUESTIONS[i]),
            "doc_hash": doc_hash(QUESTIONS[i]),
        }
        for i, right in EARLIER.items()
    ]
    return write_run(tmp_path / "earlier", rows, model="old")


def task(path, strength="auto", **metadata):
    prior = None if path is None else {"run": path, "strength": strength}
    return RepeatedSamplingTask(config=toy_config(metadata={"bayes_prior": prior, **metadata}))


def outcomes():
    counts = np.stack([4 - RIGHT, RIGHT], axis=1)
    prior = [[8 - EARLIER[i], EARLIER[i]] if i in EARLIER else [0, 0] for i in range(3)]
    return Outcomes.from_counts(counts, prior_counts=prior)


def test_the_row_uses_the_prior_trials_and_stands_beside_the_one_without(earlier, caplog):
    informed = task(str(earlier), bayes_k=1, bayes_interval="exact")
    result = evaluate(ScriptedLM(SCRIPT), informed)["results"]["toy"]
    assert f"hbayes@4: {SAME_CHANCES}" in caplog.messages
    for scope, name in (("benchmark", "hbayes@4"), ("population", "hbayes@4_population")):
        expected = prior_evidence(outcomes(), "auto", scope=scope)
        interval = expected.posterior.interval(0.95, "exact")
        values = [result[f"{name}{suffix},none"] for suffix in ("", "_stderr", "_low", "_high")]
        assert values == pytest.approx(
            [expected.posterior.mu, expected.posterior.sigma, interval.low, interval.high]
        )
    assert result["prior_strength,none"] == pytest.approx(float(expected.strength))
    alone = hbayes_at_n(outcomes().without_prior())
    assert result["hbayes@4_without_prior,none"] == pytest.approx(alone.mu)
    assert result["hbayes@4_without_prior_stderr,none"] == pytest.approx(alone.sigma)
    assert abs(result["hbayes@4,none"] - alone.mu) > 1e-3


def test_the_prior_is_of_the_first_metric_alone(earlier):
    def grades(doc, results):
        right = int(results[0] == doc["answer"])
        return {"exact_match": right, "same": right}

    config = toy_config(
        process_results=grades,
        metric_list=[{"metric": name, "aggregation": "mean"} for name in ("exact_match", "same")],
        metadata={"bayes_prior": {"run": str(earlier), "strength": 1}, "bayes_metric": "all"},
    )
    row = evaluate(ScriptedLM(SCRIPT), RepeatedSamplingTask(config=config))["results"]["toy"]
    alone = hbayes_at_n(outcomes().without_prior()).mu
    assert row["hbayes@4(same),none"] == pytest.approx(alone)
    assert row["hbayes@4,none"] != pytest.approx(alone)


def test_a_wrong_prior_is_an_error_before_sampling(earlier, tmp_path):
    with refused("bayes_prior", "path", error=TaskConfigError):
        task(str(tmp_path / "nowhere"))
    others = write_run(tmp_path / "others", [row(0, outcomes=[1, 0])], model="old")
    with refused("bayes_prior", "mismatch", "a run of sums_bayes", error=TaskConfigError):
        task(str(others))
    with refused("bayes_prior", "mismatch", error=TaskConfigError):
        task(str(earlier), bayes_weights=[0, 2])
    for wrong in (3, str(earlier), {"run": str(earlier)}, {"run": "x", "weight": 1}):
        with refused("bayes_prior", "format"):
            RepeatedSamplingTask(config=toy_config(metadata={"bayes_prior": wrong}))
    with refused("strength of bayes_prior", "range", 2):
        task(str(earlier), 2)


def test_the_store_of_the_run_itself_is_refused(tmp_path):
    store = tmp_path / "own.sqlite"
    arguments = f"backend=biased_coin,p=.5,store={store}"
    evaluate(TrialsLM.create_from_arg_string(arguments), task(None))
    assert read_runs(store).runs[0].n_trials == 12
    with refused("bayes_prior", "conflict", error=TaskConfigError):
        evaluate(TrialsLM.create_from_arg_string(arguments), task(str(store)))
