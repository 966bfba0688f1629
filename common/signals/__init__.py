"""Messages through Redis that may be lost: doorbells and hints, and why Redis cannot be used."""
