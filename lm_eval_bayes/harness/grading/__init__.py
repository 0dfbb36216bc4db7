"""Grading of one response."""

from lm_eval_bayes.harness import moved_attribute


def __getattr__(name: str) -> object:
    return moved_attribute(__name__, name)
