"""Runs that raise N round by round until a goal is reached."""
