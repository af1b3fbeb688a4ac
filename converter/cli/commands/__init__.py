"""One module for each command: its options, its calls, its output. The work is done elsewhere."""
