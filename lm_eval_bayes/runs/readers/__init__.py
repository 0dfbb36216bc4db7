"""Formats of saved runs, one module each.

A module has `sniff(file)` and `read(file, query)`, see
:class:`~lm_eval_bayes.runs.readers.protocol.Reader`, and an entry in
`lm_eval_bayes.runs.reader.READERS`. Merging, names and warnings are not its business.
"""
