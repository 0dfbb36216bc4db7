"""When to stop sampling: forecasts of the trials needed, and stopping rules."""
