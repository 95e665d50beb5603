"""Stands in for a Spark driver: it says what it was given, and ends."""

from __future__ import annotations

import os
import sys

from holdfast.pipelines.driver import say

if __name__ == "__main__":
    say("told", arguments=sys.argv[1:], password=os.environ.get("PGPASSWORD"))
