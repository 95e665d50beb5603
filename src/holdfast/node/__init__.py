"""One node: connections, handlers, partitions, fetchers, the controller. Effects, no rules."""
