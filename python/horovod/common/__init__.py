"""Horovod's names for what all frameworks share."""
