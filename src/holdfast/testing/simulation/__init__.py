"""The simulator proper: one seed gives a cluster, what is done to it, and a verdict.

`run_plan(draw_plan(seed))` is one run. `python -m holdfast.testing.simulation` is many.
"""
