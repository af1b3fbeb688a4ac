"""One module for each command: its options, its calls, its output. What it does lies elsewhere."""
