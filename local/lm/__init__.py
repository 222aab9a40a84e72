"""The n-gram language model: estimated on text, interpolated, pruned, measured on held-out text, turned into the acceptor G."""

from local.lm.arpa import Arpa
from local.lm.grammar import acceptor

__all__ = ["Arpa", "acceptor"]
