"""A session's life: plan, engine, log, and everything read from the log afterwards."""
