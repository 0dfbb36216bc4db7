"""What outlives a process: every sampled trial, in an SQLite file that survives kills."""
