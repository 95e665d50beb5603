"""What the source is made of: values of options, where it begins, how ranges are cut, connections.

All of it is pure but `connection`, which opens clients, and `headers`, which makes Arrow of them.
"""
