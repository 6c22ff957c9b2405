"""Models of the Python benches, in plain PyTorch: an MLP of 536 k parameters,
ResNet-50 (25.6 M) and GPT-2 small (124 M)."""

import torch
from torch import nn
from torch.nn import functional as F


def mlp():
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256),
                         nn.ReLU(), nn.Linear(256, 10))


class Bottleneck(nn.Module):
    def __init__(self, inside, width, stride):
        super().__init__()
        out = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out))
        self.past = nn.Identity()
        if stride != 1 or inside != out:
            self.past = nn.Sequential(nn.Conv2d(inside, out, 1, stride, bias=False),
                                      nn.BatchNorm2d(out))

    def forward(self, x):
        return F.relu(self.body(x) + self.past(x))


def resnet50():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
              nn.MaxPool2d(3, 2, 1)]
    inside = 64
    for width, n, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(n):
            layers.append(Bottleneck(inside, width, stride if i == 0 else 1))
            inside = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(2048, 1000))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2)
                   for y in self.qkv(self.ln1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class GPT2(nn.Module):
    def __init__(self, width=768, layers=12, heads=12, vocabulary=50257, length=1024):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.place = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.ln = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.token.weight

    def forward(self, ids):
        x = self.token(ids) + self.place(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.ln(self.blocks(x)))


def task(name, device, batch):
    """A model and a function that gives the loss of the next batch."""
    torch.manual_seed(0)
    if name == "mlp":
        model = mlp().to(device)
        x = torch.randn(batch, 784, device=device)
        y = torch.randint(0, 10, (batch,), device=device)
    elif name == "resnet50":
        model = resnet50().to(device, memory_format=torch.channels_last)
        x = torch.randn(batch, 3, 224, 224, device=device).to(
            memory_format=torch.channels_last)
        y = torch.randint(0, 1000, (batch,), device=device)
    else:
        model = GPT2().to(device)
        x = torch.randint(0, 50257, (batch, 1024), device=device)
        y = x.roll(-1, 1)

    def loss():
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            out = model(x)
            return F.cross_entropy(out.flatten(0, -2), y.flatten())

    return model, loss
