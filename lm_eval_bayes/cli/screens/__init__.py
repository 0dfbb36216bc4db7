"""What the everyday commands print: a sentence, a table with interval bars, and what to type next.

`layout` prints every screen, `bars` draws the bars, and each other file has the screens of one kind
of result. A screen has two forms: drawn on a terminal, and plain ASCII in a pipe.
"""
