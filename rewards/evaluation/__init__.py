"""What `python -m rewards.evaluate` is made of: reading, asking reward models, measuring, writing cards.

The protocols themselves are in `rewards.protocols`.
"""
