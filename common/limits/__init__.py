"""Token buckets shared between web processes, and turns for CPU-bound work."""
