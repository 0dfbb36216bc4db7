"""Judges, language models that score the labels of a verifier's prompt, and how runs are judged."""
