from __future__ import annotations

import subprocess
import sys

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
    "pass_at_k_posterior",
    "pass_hat_k_posterior",
    "g_pass_at_k_posterior",
    "mg_pass_at_k_posterior",
    "strict_majority_at_k_posterior",
    "InvalidInputError",
]


def test_the_promised_names_are_public():
    assert set(PROMISED) <= set(lm_eval_bayes.__all__)
    for name in lm_eval_bayes.__all__:
        assert hasattr(lm_eval_bayes, name)
    assert len(lm_eval_bayes.__all__) == len(set(lm_eval_bayes.__all__))


def test_importing_it_imports_neither_the_harness_nor_torch_nor_matplotlib():
    code = (
        "import sys, lm_eval_bayes\n"
        "print(sorted({'lm_eval', 'torch', 'matplotlib', 'datasets'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
