#!/usr/bin/env bash
# The documents: their links, the paths and options that they name, and what their commands print.
exec python3 -S tests/integration/documents.py
