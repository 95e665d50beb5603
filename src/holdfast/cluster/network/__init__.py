"""A network of its own for a cluster on this machine, whose links can be broken.

Real packets vanish between real processes. Page: docs/design/networks.md.
"""
