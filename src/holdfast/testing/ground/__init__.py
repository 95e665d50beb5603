"""What simulated processes stand on: time, network, disk and workers in memory, from one seed."""
