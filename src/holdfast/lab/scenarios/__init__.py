"""One file per scenario; each holds `SCENARIO`. `lab.scenario.SCENARIOS` is their list."""
