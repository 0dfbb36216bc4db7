"""Model backends that this package adds to the harness."""
