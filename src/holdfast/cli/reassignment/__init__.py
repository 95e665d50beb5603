"""holdfast reassign-partitions: flags, files, and the moves behind them."""
