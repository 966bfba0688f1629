"""How long tests wait for what has to come: beyond it something is stuck, and no test is decided by it otherwise."""

PATIENCE_SECONDS = 120.0
