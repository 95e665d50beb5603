"""What consumers in groups may not do: the judge of memberships, commits and what was processed."""
