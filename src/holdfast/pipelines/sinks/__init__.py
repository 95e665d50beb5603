"""Where a query's rows go, exactly once: what a batch is, in one commit with its rows.

`table_sink` has the order of the steps and knows no database; a `Store` has the commit of one kind.
"""
