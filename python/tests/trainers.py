"""trainers.py lightning|accelerate|transformers BACKEND - trains a tiny model through a library that stands on
torch.distributed, with the backend that is named. Rank 0 prints the sum and the norm of all parameters."""

import os
import sys
import tempfile
import warnings

import hvdrun.c10d  # noqa: F401 - for a torch that does not ask for it
import torch
import torch.distributed as dist

warnings.filterwarnings("ignore")


def make_model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))


def make_loader():
    x = torch.randn(64, 16, generator=torch.Generator().manual_seed(7))
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8)


def train_by_lightning(backend):
    import lightning
    from lightning.pytorch.strategies import DDPStrategy

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = make_model()

        def training_step(self, batch, index):  # noqa: ARG002 - the arguments are Lightning's
            return torch.nn.functional.mse_loss(self.model(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    module = Module()
    lightning.Trainer(
        accelerator="cpu", devices=int(os.environ["LOCAL_WORLD_SIZE"]), num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
        strategy=DDPStrategy(process_group_backend=backend), max_epochs=2, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    ).fit(module, make_loader())  # fmt: skip
    return module


def train_by_accelerate(backend):
    from accelerate import Accelerator

    dist.init_process_group(backend)  # else it takes gloo
    accelerator = Accelerator(cpu=True)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, make_loader())
    for _ in range(2):
        for x, y in loader:
            accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
    ranks = accelerator.gather(torch.tensor([accelerator.process_index])).tolist()
    assert ranks == list(range(accelerator.num_processes)), ranks
    return accelerator.unwrap_model(model)


class Words(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        words = torch.randint(0, 64, (16,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": words, "labels": words}


def train_by_transformers(backend):
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    dist.init_process_group(backend)
    torch.manual_seed(1)
    size = {"n_layer": 2, "n_head": 2, "n_embd": 32, "vocab_size": 64, "n_positions": 32}
    model = GPT2LMHeadModel(GPT2Config(**size, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
    with tempfile.TemporaryDirectory() as folder:
        Trainer(
            model=model, train_dataset=Words(),
            args=TrainingArguments(
                output_dir=folder, use_cpu=True, per_device_train_batch_size=4, max_steps=6, learning_rate=0.01,
                optim="sgd", report_to=[], disable_tqdm=True, save_strategy="no", logging_strategy="no", seed=3,
            ),
        ).train()  # fmt: skip
    return model


torch.set_num_threads(1)
trained = globals()[f"train_by_{sys.argv[1]}"](sys.argv[2])
assert dist.get_backend() == sys.argv[2], dist.get_backend()
if dist.get_rank() == 0:
    values = torch.cat([parameter.detach().reshape(-1) for parameter in trained.parameters()])
    print(f"trained {values.sum().item():.5f} {values.norm().item():.5f}", flush=True)
dist.barrier()
if sys.argv[2] == "gloo":
    os._exit(0)  # its threads may abort a process that ends
