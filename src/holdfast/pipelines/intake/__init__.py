"""What the source is made of: values of options, where it begins, how ranges are cut, connections.

All of it is pure but `connection`, which opens clients, `forked`, which takes them from a child,
and `headers`, which makes Arrow of them.
"""
