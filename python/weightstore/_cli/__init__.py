"""``weightstore``, the command. One module a verb; `main` has them all.

Verbs are thin: what they do is a function of the package. Nothing here imports numpy or torch at the top, so that `inspect` and
`list` answer at once.
"""
