"""Presentation of results: the HTML report, and tables as a page.

What belongs here: HTML and SVG code that shows results of `analysis`. What does not:
computing a result.
"""
