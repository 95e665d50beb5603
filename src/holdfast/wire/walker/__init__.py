"""The record walker: looks at a batch's records, as they lie there inflated, and makes none."""
