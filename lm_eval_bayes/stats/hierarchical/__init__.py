"""What the questions teach about their common prior, for two categories and for rubrics."""
