"""The errors the project raises for bad input: three families under RewardError.

A completion never causes an error, only a Score; these are for configuration, data and our own machinery.
"""

from __future__ import annotations


class RewardError(Exception):
    """Base of every error raised on purpose by this project."""


class ConfigError(RewardError, ValueError):
    """A setting is unknown, mistyped or in conflict: names the option, what was expected and the fix."""


class DataError(RewardError, ValueError):
    """Input data is unreadable: names the file, the line and the field."""


class EngineError(RewardError):
    """Our machinery cannot go on: workers keep dying, too many scores failed, a run directory is broken."""
