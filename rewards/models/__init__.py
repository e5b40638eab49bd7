"""Learned judges: public or trained reward models behind the same scorer interface as the rules.

conventions, presets: how a reward model is fed and read, as data; the public ones by name.
settings: which weights, on which device, in which numbers.
outcome, process: the scorers, which load nothing until they first score; judging: what they share.
rendering: a question and steps -> token ids and the positions that are read.
loading, heads, backbone: files -> weights -> values at those positions.
engine: inputs that fit, batches, and the models loaded in a process.
selfcheck: refuses a model that would score wrongly.
"""
