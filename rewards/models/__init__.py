"""Learned judges: public or trained reward models behind the same scorer interface as the rules.

conventions   how a reward model is fed and read, as data, with presets for the public ones
settings      which weights, on which device, in which numbers
outcome, process   the scorers; they load nothing until they first score
rendering     problem and steps -> token ids and the positions that are read
backbone, heads    weights -> logits at those positions
engine        batches, and the cache of loaded models
selfcheck     refuses a model that would score wrongly
"""
