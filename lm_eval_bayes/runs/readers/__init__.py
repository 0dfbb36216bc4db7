"""One file for each format of saved runs."""
