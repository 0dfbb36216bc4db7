"""Convergence of rankings with the number of trials."""
