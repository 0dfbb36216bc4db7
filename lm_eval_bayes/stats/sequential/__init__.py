"""When to stop sampling: forecasts of trials, and rules that are looked at while a run goes on."""
