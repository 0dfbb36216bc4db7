"""Rubrics: what was measured of a trial, turned into a category with a weight."""
