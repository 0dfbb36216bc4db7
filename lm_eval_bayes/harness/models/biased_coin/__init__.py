"""A model whose true score is known."""
