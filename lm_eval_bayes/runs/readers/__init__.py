"""Formats of saved runs, one module each.

A module has `is_mine(file)` and `read(file, query)`, see
:class:`~lm_eval_bayes.runs.readers.protocol.Reader`, and an entry in
:data:`~lm_eval_bayes.runs.readers.formats.FORMATS`. Merging, names and warnings are not its
business.
"""
