"""Horovod's name for hvdrun.torch.elastic.sampler."""

from hvdrun.torch.elastic.sampler import ElasticSampler

__all__ = ["ElasticSampler"]
