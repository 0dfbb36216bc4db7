"""Short pauses between attempts, and a key, for all tests of OpenAI-compatible servers."""

import pytest

from lm_eval_bayes._util import http


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(http, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(http, "LONGEST_PAUSE_S", 0.08)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-the-tests")
