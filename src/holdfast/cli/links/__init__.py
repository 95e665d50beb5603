"""Commands for the links of a cluster's own network: cut, isolate, heal, slow, lose, swallow."""
