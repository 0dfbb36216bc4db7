"""What several test modules share; `pythonpath` in pyproject.toml makes it importable."""
