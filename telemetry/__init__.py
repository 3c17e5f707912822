"""What the machine did: GPUs and the server's own gauges."""
