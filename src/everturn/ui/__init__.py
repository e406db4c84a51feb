"""Pieces that the command and the inspector share.

html.py          elements to HTML, escaped
times.py         moments as people read them
change_graph.py  a session's changes as the rows of a graph
"""
