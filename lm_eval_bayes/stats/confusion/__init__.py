"""Functions of a confusion matrix: F-scores, precision, recall, MCC and your own."""
