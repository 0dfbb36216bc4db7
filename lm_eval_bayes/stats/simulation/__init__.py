"""Biased coins that stand for models, and what they teach about priors."""
