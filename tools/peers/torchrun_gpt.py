"""The peer that ./dev bench failover measures beside Locum: the same GPT in PyTorch under torchrun, a checkpoint at every
step, data-parallel over Gloo. Writes one line a step and rank: rank, step, CLOCK_MONOTONIC nanoseconds of the commit.

  torchrun ... torchrun_gpt.py --data FILE --dir DIR --steps N --batch B [--layers L --heads H --width W --context C]
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.project = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.expand, self.contract = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x, mask):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(q @ k.transpose(2, 3) * (c // self.heads) ** -0.5 + mask, -1)
        x = x + self.project((weights @ v).transpose(1, 2).reshape(b, t, c))
        return x + self.contract(F.gelu(self.expand(self.norm2(x))))


class Gpt(torch.nn.Module):
    def __init__(self, layers, heads, width, context):
        super().__init__()
        self.embedding = torch.nn.Parameter(torch.randn(256, width) * 0.02)
        self.positions = torch.nn.Parameter(torch.randn(context, width) * 0.02)
        self.blocks = torch.nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.final = torch.nn.LayerNorm(width)
        self.register_buffer("mask", torch.full((context, context), float("-inf")).triu_(1))

    def forward(self, tokens, targets):
        x = F.dropout(F.embedding(tokens, self.embedding) + self.positions, 0.1, self.training)
        for block in self.blocks:
            x = block(x, self.mask)
        return F.cross_entropy((self.final(x) @ self.embedding.T).view(-1, 256), targets.reshape(-1))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--data", required=True)
    p.add_argument("--dir", required=True)
    for name, default in (("steps", 1000), ("batch", 4), ("layers", 5), ("heads", 4), ("width", 128), ("context", 128)):
        p.add_argument(f"--{name}", type=int, default=default)
    args = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    data = torch.frombuffer(bytearray(open(args.data, "rb").read()), dtype=torch.uint8)
    model = Gpt(args.layers, args.heads, args.width, args.context)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
    checkpoint = os.path.join(args.dir, "checkpoint.pt")
    first = 0
    if os.path.exists(checkpoint):
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"]
    parameters = list(model.parameters())
    with open(os.path.join(args.dir, f"log-{rank}-{os.getpid()}"), "w", buffering=1) as log:
        for step in range(first, args.steps):
            torch.manual_seed(step * world + rank)
            starts = torch.randint(len(data) - args.context - 1, (args.batch,))
            tokens = torch.stack([data[s:s + args.context + 1] for s in starts]).long()
            optimizer.zero_grad()
            model(tokens[:, :-1], tokens[:, 1:]).backward()
            flat = torch.cat([q.grad.reshape(-1) for q in parameters])
            dist.all_reduce(flat)
            at = 0
            for q in parameters:
                q.grad.copy_(flat[at:at + q.numel()].view_as(q) / world)
                at += q.numel()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            log.write(f"{rank} {step} {time.monotonic_ns()}\n")
            if rank == 0:
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1},
                           checkpoint + ".part")
                os.replace(checkpoint + ".part", checkpoint)


if __name__ == "__main__":
    main()
