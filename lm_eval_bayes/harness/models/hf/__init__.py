"""Trials from the harness's `hf` backend: transformers' `generate` with a seed for each trial."""
