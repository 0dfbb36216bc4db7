"""The report: saved runs as one HTML file that needs nothing else."""
