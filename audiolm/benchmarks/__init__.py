"""How fast the parts are: beside their alternatives, and beside what the machine can do.

A section measures candidates (`rounds.Candidate`) that do equal work, one after the other in each
of several rounds, together with the machine's limits, and says what it checked. `report` prints
and writes what the sections found. A section is one file with one function that takes its settings
and gives a `report.Section`.
"""
