"""The engine: one process per session that puts presets in effect, measures, and outlives every terminal."""
