"""What `executor=ray` sets before it imports ray, and what it says where the package is missing."""

import os
import sys
from types import SimpleNamespace

import pytest

from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness.models.ray import cluster
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


@pytest.mark.parametrize(
    ("token", "mode", "expected"),
    [(True, None, "token"), (True, "disabled", "disabled"), (False, None, None)],
)
def test_a_token_of_this_user_is_sent(monkeypatch, tmp_path, token, mode, expected):
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace())
    # so that the variables are as before after the test
    for name in (*cluster._ENVIRONMENT, "RAY_AUTH_MODE"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    if mode is not None:
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
    monkeypatch.setattr(cluster, "_TOKEN", tmp_path / "auth_token")
    if token:
        (tmp_path / "auth_token").write_text("00")
    cluster.import_ray()
    assert os.environ.get("RAY_AUTH_MODE") == expected
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
