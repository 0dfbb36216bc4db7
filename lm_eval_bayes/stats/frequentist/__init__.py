"""Frequentist confidence intervals, for comparison with the credible ones."""
