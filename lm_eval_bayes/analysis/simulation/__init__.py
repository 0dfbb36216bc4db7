"""Simulated benchmarks whose true scores are known."""
