"""What the operator sees and types: command line, live screens."""
