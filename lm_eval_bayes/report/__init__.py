"""Presentation of results: the HTML report, its figures as files, and tables as a page.

What belongs here: HTML, SVG and matplotlib code that shows results of `analysis`. What does not:
computing a result.
"""
