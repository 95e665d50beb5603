"""Redis as a table: `TABLE:KEY` is a hash, written by one script a row.

`store` owns the order of the steps, `winners` which row of a key is written, `task` what Spark's
workers do, `scripts` what Redis does, `values` how columns are spelt there.
"""
