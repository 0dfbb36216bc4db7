"""Trials from the harness's `hf` backend, by a token loop with a seed for each trial."""
