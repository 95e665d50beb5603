"""Commands for the cluster on this machine: up, down, status, kill, start."""
