"""The embedded corpus: synthetic conversations on LDC discs, made by the recipe itself so that all of it can be run."""
