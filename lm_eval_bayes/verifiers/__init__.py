"""Judges: language models, here or on a server, that score the labels of a verifier's prompt."""
