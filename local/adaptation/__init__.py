"""Adaptation of features: linear transforms for classes and speakers, i-vectors."""
