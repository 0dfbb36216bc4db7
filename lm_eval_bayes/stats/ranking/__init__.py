"""Rankings with ties, and the posterior of the ranks."""
