"""The configuration of rewards.fit, in a folder of its own: here `model` and `data` are values, no groups."""
