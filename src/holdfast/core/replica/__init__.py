"""One partition as its leader sees it, and as those who read from it do."""
