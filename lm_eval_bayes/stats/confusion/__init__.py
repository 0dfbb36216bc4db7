"""Scores of a confusion matrix: F-scores, precision, recall, MCC and user-defined ones."""
