"""Fuzzes operations of DTensor, as chains with their backward passes, on simulated ranks."""
