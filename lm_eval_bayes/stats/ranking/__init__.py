"""Rankings of models: ties, simultaneous comparisons, confidence sets for ranks.

`rank` makes the ranking; `simultaneous` compares all pairs of models with a familywise guarantee;
`shared_scores` draws scores jointly and counts their ranks, and has the scores and P(A > B) under
a prior that is learned from all models. What reads saved runs belongs in `analysis`.
"""
