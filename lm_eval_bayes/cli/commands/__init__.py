"""One file per command of `lm-eval-bayes`: its options, its call, and its tables."""
