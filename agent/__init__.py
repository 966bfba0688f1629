"""The program in every replica: standard library only, Python 3.8+, built into one agent.pyz.

It starts the replica's command, sees every rank from inside, and tells the control plane; docs/wire.md is its
contract. Its first rule: it must never bring training down, so every failure of its own is noted and survived.
"""
