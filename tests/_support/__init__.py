"""What several test modules share: importable as `_support` (see `pythonpath` in pyproject.toml)."""
