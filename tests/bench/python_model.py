"""A model of PyTorch whose gradients have given sizes, and whose backward pass finishes them one after the other. Beyond adding a gradient
to what was there, as torch does, a layer takes as long as `work` does."""
import horovod.torch
import torch


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, work):
        ctx.shape, ctx.work = weight.shape, work
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        if ctx.work is not None:
            ctx.work()
        return grad, grad.expand(ctx.shape), None


class Model(torch.nn.Module):
    """counts: the elements of each gradient, in the order of backward."""

    def __init__(self, counts):
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.nn.Parameter(torch.zeros(count)) for count in reversed(counts))
        self.work = None

    def forward(self, x):
        for weight in self.weights:
            x = _Layer.apply(x, weight, self.work)
        return x


def gradient(rank):
    """What backward() of the model's result is given: all elements of all gradients."""
    return torch.tensor(rank + 1.0)


def check(model, ranks):
    """The gradients are the average over the ranks of what gradient() returns."""
    for number, weight in enumerate(model.weights):
        assert bool((weight.grad == (ranks + 1) / 2).all()), f"gradient {number} is wrong: {weight.grad[0]}"


def through_optimizer(model, x, rank):
    """An optimizer whose gradients travel after two passes together. Returns stay(), a pass that sends nothing, and synchronize(), which
    sends the gradients of the passes before. Both have run once."""
    optimizer = horovod.torch.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), backward_passes_per_step=2)

    def stay():
        model(x).backward(gradient(rank))

    stay()
    optimizer.synchronize()
    return stay, optimizer.synchronize


def through_parallel(parallel, x, rank):
    """Does a step of torch's DistributedDataParallel. Returns two calls: a step whose gradients stay on the rank, and one whose do not."""
    def step():
        parallel(x).backward(gradient(rank))

    def stay():
        with parallel.no_sync():
            step()

    step()
    return stay, step
