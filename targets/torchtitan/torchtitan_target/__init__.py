"""The target of shardfuzz for torchtitan."""
