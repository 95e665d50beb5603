"""What `holdfast prove` does besides one scenario on a cluster of its own."""
