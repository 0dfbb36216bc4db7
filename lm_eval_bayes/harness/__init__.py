"""The only room that imports lm_eval: tasks, metrics, models and their registration."""
