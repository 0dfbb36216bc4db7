"""`executor=ray`: trials sampled by many worker processes, on one node or many.

Here belong the schedule of the trials, the messages, the worker, what Ray is asked for, and the
sampling mixin of the process that owns the store (the driver). Not here: backends, the store,
seeds and keys, which are those of a run of one process.
"""
