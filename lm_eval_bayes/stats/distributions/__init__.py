"""Distributions of a benchmark's score: how they are drawn from, convolved and tabulated."""
