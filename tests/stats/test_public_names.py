from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import lm_eval_bayes

PROMISED = [
    "Outcomes",
    "Interval",
    "Posterior",
    "Estimate",
    "bayes_at_n",
    "avg_at_n",
    "pass_at_k",
    "pass_hat_k",
    "naive_pass_hat_k",
    "naive_pass_at_k",
    "g_pass_at_k",
    "mg_pass_at_k",
    "strict_majority_at_k",
    "maj_at_k",
    "maj_at_k_posterior",
    "pass_at_k_posterior",
    "pass_hat_k_posterior",
    "g_pass_at_k_posterior",
    "mg_pass_at_k_posterior",
    "strict_majority_at_k_posterior",
    "hbayes_at_n",
    "learn_prior_strength",
    "prior_evidence",
    "mean_evidence",
    "mean_pseudo_trials",
    "mean_over_tasks",
    "compare",
    "compare_paired",
    "compare_unpaired",
    "compare_pass_curves",
    "rank",
    "convergence_at_n",
    "kendall_tau_b",
    "simulate_outcomes",
    "clt_interval",
    "wilson_interval",
    "clopper_pearson_interval",
    "bootstrap_interval",
    "clustered_interval",
    "clustered_posterior",
    "confusion_posterior",
    "AnchorMatrix",
    "capability_intervals",
    "trials_needed",
    "variance_components",
    "detectable_difference",
    "size_for_difference",
    "InvalidInputError",
]


def test_the_promised_names_are_public():
    assert set(PROMISED) <= set(lm_eval_bayes.__all__)
    for name in lm_eval_bayes.__all__:
        assert hasattr(lm_eval_bayes, name)
    assert len(lm_eval_bayes.__all__) == len(set(lm_eval_bayes.__all__))


def takes_outcomes():
    for name in lm_eval_bayes.__all__:
        function = getattr(lm_eval_bayes, name)
        if inspect.isfunction(function):
            parameters = inspect.signature(function).parameters.values()
            typed = [p.name for p in parameters if p.annotation == "Outcomes"]
            if typed:
                yield pytest.param(function, typed, id=name)


@pytest.mark.parametrize(("function", "typed"), list(takes_outcomes()))
def test_a_bare_matrix_is_refused_in_a_sentence(function, typed):
    # the first mistake of a newcomer
    parameters = inspect.signature(function).parameters
    needed = [p for p in parameters.values() if p.default is p.empty]
    arguments = {p.name: [[0, 1], [1, 1]] if p.name in typed else 1 for p in needed}
    with pytest.raises(lm_eval_bayes.InvalidInputError, match=r"`\w+` must be an? .*; got"):
        function(**arguments)


def test_importing_it_imports_neither_the_harness_nor_torch_nor_matplotlib():
    code = (
        "import sys, lm_eval_bayes\n"
        "print(sorted({'lm_eval', 'torch', 'matplotlib', 'datasets'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
