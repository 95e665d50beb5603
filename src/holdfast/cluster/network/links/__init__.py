"""The links of a network: what is asked of them, and what puts it in force."""
