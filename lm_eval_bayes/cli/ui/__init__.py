"""Shared options, output, tables, progress and errors of the commands."""
