"""Grading of one response."""
