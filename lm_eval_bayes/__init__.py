"""Honest posteriors for repeated sampling in the lm-evaluation-harness."""

__version__ = "0.1.0"
