"""What `executor=ray` sets before it imports ray, and what it says where the package is missing."""

import os
import sys
from types import ModuleType, SimpleNamespace

import pytest
from _support.errors import refused

from lm_eval_bayes.errors import ModelConfigError
from lm_eval_bayes.harness.models.ray import cluster
from lm_eval_bayes.harness.models.trials import TrialsLM


def test_the_error_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    with refused("ray", "not-installed", None, error=ModelConfigError):
        TrialsLM(
            backend="biased_coin",
            store=str(tmp_path / "a.sqlite"),
            executor="ray",
            workers=2,
            p=0.5,
        )


@pytest.fixture
def imported_ray(monkeypatch):
    """Ray's package as somebody has imported it before; return how often it read its settings."""
    read = []

    def init(address, **options):
        mode = read[-1] if read else None  # what it read last is what it sends
        raise ConnectionError(f"no cluster at {address}, mode {mode}")

    config = SimpleNamespace(initialize=lambda text: read.append(os.environ.get("RAY_AUTH_MODE")))
    raylet = ModuleType("ray._raylet")
    raylet.Config = config
    ray = ModuleType("ray")
    ray._raylet, ray.init, ray.is_initialized = raylet, init, lambda: False
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray._raylet", raylet)
    # so that the variables are as before after the test
    for name in (*cluster._ENVIRONMENT, "RAY_AUTH_MODE", "RAY_ADDRESS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return read


@pytest.mark.parametrize(
    ("token", "mode", "read"),
    [(True, None, ["token"]), (True, "disabled", []), (False, None, [])],
)
def test_a_token_of_this_user_is_sent_to_the_cluster_of_an_address(
    monkeypatch, tmp_path, imported_ray, token, mode, read
):
    if mode is not None:
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    monkeypatch.setattr(cluster, "_TOKEN", tmp_path / "auth_token")
    if token:
        (tmp_path / "auth_token").write_text("00")
    with refused("RAY_ADDRESS", "failed", "10.0.0.1:6379", error=ModelConfigError):
        cluster.RayCluster(2)
    assert imported_ray == read
    assert os.environ.get("RAY_AUTH_MODE") == (mode or ("token" if token else None))
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
