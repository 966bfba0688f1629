"""Who may take quota now, who waits why and until when. Reads rows for queues/admission and records what it decides."""
