"""Transformers of language and vision, written from their papers with torch.nn alone."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

__all__ = ["Bert", "Gpt", "VisionTransformer"]

_BERT_VOCABULARY = 30522
_GPT_VOCABULARY = 50257
_MAX_TOKENS = 1024
_CLASSES = 1000


class _Attention(nn.Module):
    """Multi-head self-attention; `causal` lets a token see only those before it."""

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.heads = heads
        self.causal = causal
        self.inputs = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.inputs(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.output(y.transpose(1, 2).reshape(batch, length, width))


class _Block(nn.Module):
    """Attention and a feed-forward network; normalised before each, or after each as BERT does."""

    def __init__(self, width: int, heads: int, *, causal: bool, norm_first: bool) -> None:
        super().__init__()
        self.norm_first = norm_first
        self.attention = _Attention(width, heads, causal=causal)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.norm_first:
            x = x + self.attention(self.norm1(x))
            return x + self.feed_forward(self.norm2(x))
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.feed_forward(x))


def _blocks(width: int, depth: int, heads: int, *, causal: bool, norm_first: bool) -> nn.Sequential:
    return nn.Sequential(*(_Block(width, heads, causal=causal, norm_first=norm_first) for _ in range(depth)))


class _PositionEmbedding(nn.Module):
    """Embeddings of tokens and their positions."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.position_embedding = nn.Embedding(_MAX_TOKENS, width)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.tokens(ids) + self.position_embedding(torch.arange(ids.shape[1], device=ids.device))


class Bert(nn.Module):
    """BERT's encoder that predicts masked tokens (Devlin et al., 2018)."""

    vocabulary = _BERT_VOCABULARY

    def __init__(self, width: int = 768, depth: int = 12, heads: int = 12) -> None:
        super().__init__()
        self.embeddings = _PositionEmbedding(_BERT_VOCABULARY, width)
        self.norm = nn.LayerNorm(width)
        self.blocks = _blocks(width, depth, heads, causal=False, norm_first=False)
        self.transform = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        self.head = nn.Linear(width, _BERT_VOCABULARY)
        self.head.weight = self.embeddings.tokens.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.transform(self.blocks(self.norm(self.embeddings(ids)))))


class Gpt(nn.Module):
    """The decoder of GPT-2 (Radford et al., 2019), over a whole prompt."""

    vocabulary = _GPT_VOCABULARY

    def __init__(self, width: int = 768, depth: int = 12, heads: int = 12) -> None:
        super().__init__()
        self.embeddings = _PositionEmbedding(_GPT_VOCABULARY, width)
        self.blocks = _blocks(width, depth, heads, causal=True, norm_first=True)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, _GPT_VOCABULARY, bias=False)
        self.head.weight = self.embeddings.tokens.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.embeddings(ids))))


class VisionTransformer(nn.Module):
    """ViT with patches of 16 by 16 (Dosovitskiy et al., 2020)."""

    def __init__(self, width: int = 768, depth: int = 12, heads: int = 12, patch: int = 16, side: int = 224) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.position_embedding = nn.Parameter(torch.randn(1, (side // patch) ** 2 + 1, width) * 0.02)
        self.blocks = _blocks(width, depth, heads, causal=False, norm_first=True)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, _CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1)
        x = self.blocks(x + self.position_embedding[:, : x.shape[1]])
        return self.head(self.norm(x)[:, 0])
