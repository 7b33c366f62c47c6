#!/usr/bin/env bash
# README.md shows what its commands print.
exec python3 -S tests/integration/readme.py
