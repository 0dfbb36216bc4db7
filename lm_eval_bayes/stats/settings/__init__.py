"""A score over settings: the ways in which a model can be run, as a sample of such ways."""
