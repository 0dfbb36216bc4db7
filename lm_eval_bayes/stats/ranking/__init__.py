"""Leaderboards with ties, and how sure they are."""
