"""Confidence intervals: what the field reports, to be compared with."""
