"""The task class that samples every question N times, its settings and its rows."""
