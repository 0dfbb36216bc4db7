"""Simulated models with known true scores, and a simulation study of priors."""
