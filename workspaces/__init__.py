"""The code of jobs: files by their sha256 within a team, manifests, packs, differences, garbage collection."""
