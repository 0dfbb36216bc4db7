"""numpy and scipy only: outcomes in, posteriors and estimates out."""
