"""Pass@k, Pass^k, G-Pass@k and their relatives, for right and wrong trials.

`estimators` has the expected score of a random k-subset of the given trials, k <= N; `posteriors`
has the posterior of the expected score of k new trials, at any k. The two have different
estimands, and different names. maj@k, whose vote needs the answers, is not of this family.
"""
