"""From requests to answers: every front end (Python, command line, later REST) asks through here.

Each verb turns the names, numbers and paths of its request into the core's nouns and calls the core; nothing
else does. The core is imported when a verb is called. `serving/table.py` lists the verbs.
"""
