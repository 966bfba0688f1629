"""The formats that agent and control plane share: batches, manifests, packs (docs/wire.md)."""
