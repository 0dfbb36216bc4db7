"""What is told about runs: tables and pictures."""
