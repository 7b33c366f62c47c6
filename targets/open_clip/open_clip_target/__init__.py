"""Contrastive pre-training with open_clip's losses, run by shardfuzz."""
