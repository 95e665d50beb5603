"""`holdfast watch`: what becomes of a cluster while somebody breaks things in another terminal."""
