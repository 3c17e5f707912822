"""Whether the figures are true: cells on the simulated server, held against what it says really happened."""
