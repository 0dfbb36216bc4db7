"""How many trials a ranking takes until it stays."""
