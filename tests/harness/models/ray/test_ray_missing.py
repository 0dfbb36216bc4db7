"""`executor=ray` where the package ray is missing."""

import sys

import pytest

from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness.models.trials import TrialsLM


def test_the_error_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ModelConfigError, match=r"of the extra lm-eval-bayes\[ray\]: pip install "):
        TrialsLM(
            backend="biased_coin",
            store=str(tmp_path / "a.sqlite"),
            executor="ray",
            workers=2,
            p=0.5,
        )
