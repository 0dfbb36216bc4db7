"""Short pauses between attempts, and a key, for all tests of OpenAI-compatible servers."""

import pytest

from lm_eval_bayes._util import retry
from lm_eval_bayes.harness.models.openai import retrying


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(retrying, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(retrying, "LONGEST_PAUSE_S", 0.08)
    monkeypatch.setattr(retrying, "LONGEST_AGAIN_S", 0.1)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-the-tests")
