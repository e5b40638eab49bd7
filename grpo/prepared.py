"""Prepared data and its cache, which rewards.prepared knows; training reads problems from it."""

from __future__ import annotations

from rewards.prepared import CACHE_VARIABLE, PREPARED_FILE, Setting, cache_folder, ensure_prepared

__all__ = ["CACHE_VARIABLE", "PREPARED_FILE", "Setting", "cache_folder", "ensure_prepared"]
