"""What is decided: pure, synchronous, without clock, socket, file or randomness of its own."""
