"""The command `lm-eval-bayes`, one file a command."""
