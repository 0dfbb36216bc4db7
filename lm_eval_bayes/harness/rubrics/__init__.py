"""Rubrics inside the harness: a task class, its rows, and custom rubrics."""
