"""The field's protocols for measuring reward models, as pure functions of stored scores.

Each module is one question put to a reward model; none loads a model, reads a file or knows a convention.
"""
