"""The losses of reward models: pure functions of logits and targets, in fp32, summed.

Each gives the sum over its units (examples, pairs or labelled steps); whoever calls divides by the number of
units in the whole optimiser step, so that micro-batches change no gradient. A batch without any label gives
0 with a gradient of zeros, never NaN.

Targets are masses over classes, which says hard labels (0, 1), soft ones (1 - q, q), three-way ones and
weights alike; no mass means no label. A scalar logit z is read as the class logits (0, z): cross-entropy over
them is binary cross-entropy with logits.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def bradley_terry(chosen: Tensor, rejected: Tensor, margins: Tensor, centring: float) -> Tensor:
    """sum of -log sigmoid(r_c - r_r - m) + centring * (r_c + r_r)^2.

    Bradley and Terry 1952; the margin as in Touvron and others 2023 (2307.09288, equation 2); the second
    term, which keeps scores around 0, as in Eisenstein and others 2023 (2312.09244, section 5).

    Args:
        chosen: (N,) scores of the better ones.
        rejected: (N,) of the worse ones.
        margins: (N,), >= 0.
        centring: weight of the second term.

    Returns:
        () fp32; 0 for N = 0.
    """
    lost = -functional.logsigmoid(chosen.float() - rejected.float() - margins)
    return (lost + centring * (chosen.float() + rejected.float()).square()).sum()


def class_logits(scores: Tensor) -> Tensor:
    """(N,) scalar logits of being right -> (N, 2) logits of (wrong, right): (0, z)."""
    return torch.stack([torch.zeros_like(scores), scores], dim=-1)


def cross_entropy(logits: Tensor, masses: Tensor) -> Tensor:
    """sum over rows and classes of -mass * log softmax(logits).

    With masses (1 - q, q) and logits (0, z) this is BCE(sigmoid(z), q) in its logits form; soft labels q of
    Monte-Carlo estimates are thus targets (Wang and others 2023, 2312.08935, soft estimation).

    Args:
        logits: (N, C), of any precision.
        masses: (N, C), >= 0; rows of zeros count for nothing.

    Returns:
        () fp32.
    """
    return -(masses * functional.log_softmax(logits.float(), dim=-1)).sum()
