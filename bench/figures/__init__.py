"""The figures, P1 to P11 and H1. A module measures some of them: measure(stage, raw) fills `raw`, which goes to raw.json as it is, and
rows(raw) makes the lines of the tables from it."""
