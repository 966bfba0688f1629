"""How long tests wait for an event that must come. It only turns hanging into a failure; no assertion depends on it."""

PATIENCE_SECONDS = 120.0
