"""Learned judges: public or trained reward models behind the same scorer interface as the rules.

Used:
conventions, presets: how a reward model is fed and read, as data; the public ones by name.
settings: which weights, on which device, in which numbers.
outcome, process: the scorers, which load nothing until they first score; judging: what they share.
rendering, truncation: a question and steps -> token ids that fit, and the positions that are read.
loading, heads, backbone: files -> weights -> values at those positions.
engine: inputs, batches, and the models loaded in a process.
selfcheck: refuses a model that would score wrongly.
calibrating: values -> probabilities.

Trained:
fitting: `fit`, the whole of it; fit_settings, fit_report: what goes in and what comes out.
targets, collating: labels -> what the losses aim at -> batches.
preparing, trainable, losses: a base -> a model with a loss.
training: transformers' Trainer, run so that it leaves no trace in the process.
measuring: figures and calibration on held-out examples.
"""
