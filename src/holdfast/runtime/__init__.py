"""The five ports through which the node touches the world, and the real things behind them."""
