"""Code that the command and the inspector share. Pure.

change_graph.py  the changes of a session: which turn follows which, as the rows of a graph
descriptions.py  sentences about sessions, changes and tool calls
html.py          elements to HTML, escaped
times.py         dates and times for people
"""
