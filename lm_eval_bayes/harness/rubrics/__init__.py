"""Rubrics inside the harness: a task class, its rows, and rubrics of one's own."""
