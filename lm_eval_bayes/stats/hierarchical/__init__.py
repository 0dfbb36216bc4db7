"""Priors learned across the questions of a benchmark, for two categories and for rubrics."""
