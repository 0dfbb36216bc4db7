"""Requests for single trials, as a recording model makes them."""

from __future__ import annotations

from lm_eval_bayes.harness.models.interface import TrialRequest
from lm_eval_bayes.store.trial import TrialKey

KEY = TrialKey(*(f"blake2b-128:{digit * 32}" for digit in "123"))


def trial_request(index, context, prompt, trial, seed, kwargs, instance=None):
    return TrialRequest(index, context, instance, prompt, trial, seed, kwargs, KEY)
