"""The interactive page: simulated models, their posteriors and their ranking."""
