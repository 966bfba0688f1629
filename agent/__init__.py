"""The program in every replica: standard library only, Python 3.8+, built into one agent.pyz.

It starts the replica's command, observes every rank from inside, and reports to the control plane; docs/wire.md is its
contract. Its first rule: it must never bring training down, so each of its own failures is logged and survived.
"""
