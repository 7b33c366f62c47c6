"""The target of shardfuzz for transformers."""
