"""The trial store: every sampled trial, with its signals and outcomes, in one SQLite file.

Every commit survives a kill of the process. What is stored, merged, verified, pruned and exported
belongs here. Reading a store as a run belongs in ``runs``; sampling and grading belong in
``harness``.
"""
