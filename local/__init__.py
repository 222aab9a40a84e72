"""The stages' tools, each run as ``python -m local.<stage>``; nothing in here is true of Switchboard only."""
