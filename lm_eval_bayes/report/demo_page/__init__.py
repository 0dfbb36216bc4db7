"""One offline HTML page on which estimates, intervals and ranks move as trials come in."""
