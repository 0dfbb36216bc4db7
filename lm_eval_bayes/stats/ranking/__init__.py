"""Rankings of models: ties, simultaneous comparisons, confidence sets for ranks.

`rank` makes the ranking; `rank_draws` counts ranks in joint draws; `simultaneous` compares all
pairs of models with a familywise guarantee; `shared_scores` has the scores and P(A > B) under a
prior that is learned from all models. What reads saved runs belongs in `analysis`.
"""
