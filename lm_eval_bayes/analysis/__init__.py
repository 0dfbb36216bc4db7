"""What saved runs say, as numbers."""
