"""Scoring as NIST's hubscr.pl does it: mapping rules, time-mediated segments, weighted alignment, counts."""
