"""Online latent Dirichlet allocation (Hoffman, Blei, Bach 2010) on Wikipedia: five hyperparameters.

An epoch is the next 5,000 articles of an endless shuffled stream, in minibatches of 500. The loss is the perplexity per
word of held-out articles: their topics are inferred from one half of an article's different words, and the other half
is predicted.

Reduced against the paper: 142,856 articles instead of 250,000, two thirds of them from Simple English; of the 14,285
that are held out 5,000 are used; an article's topics are found in 15 iterations. The paper does not say how it computed
perplexity, nor what its epoch was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from scipy.sparse import csc_matrix
from scipy.special import psi

import freezethaw as ft
from experiments import checkpoint, data

SPACE = ft.Space(
    topics=ft.Int(2, 100),
    alpha=ft.Float(0.0, 2.0),  # base measure of an article's topics
    eta=ft.Float(0.0, 2.0),  # base measure of a topic's words
    learning_rate=ft.Float(0.1, 1.0),
    decay=ft.Float(1e-5, 1.0, log=True),  # the rate of the t-th minibatch is learning_rate / t^decay
)
MINIBATCH = 500
ITERATIONS = 15  # of an article's topics
TINY = np.float32(1e-30)  # of a probability, in place of a division by zero
AT_ONCE = 2**18  # numbers that are worked on at a time: about what the processor keeps close
FIRST_SHAPE = 100.0  # of the gamma distribution of a topic's first weights, whose mean is 1


class OnlineLda:
    """Variational inference with natural gradients. `topics[v, k]` is the weight of word v in topic k (lambda)."""

    articles = 5_000  # in an epoch
    held_out_articles = 5_000

    def __init__(self, config: Mapping[str, float], seed: int) -> None:
        self.config, self.seed, self.rng = config, seed, np.random.default_rng(seed)
        self.train, _ = data.articles()
        shape = (self.train.vocabulary, int(config["topics"]))
        self.topics = (self.rng.standard_gamma(FIRST_SHAPE, shape) / FIRST_SHAPE).astype(np.float32)
        self.minibatches = 0

    def train_epoch(self) -> float:
        """The next articles of the stream; the held-out perplexity."""
        with np.errstate(all="ignore"):  # psi(0) = -inf: the limit of a base measure 0
            for _ in range(self.articles // MINIBATCH):
                self._step(self._next_articles())
            return self.perplexity()

    def perplexity(self) -> float:
        """Of the second half of the words of each held-out article, given the first half."""
        known, hidden = _halves(self.held_out_articles)
        words = expected_words(self.topics)
        everything = np.arange(len(known))
        weights = np.empty((len(known), self.topics.shape[1]), dtype=np.float32)
        for group in groups(known, everything, self.topics.shape[1]):
            weights[group.rows] = group.infer(words, self.config["alpha"])
        shares = weights / np.maximum(weights.sum(axis=1, keepdims=True), TINY)
        likely = self.topics / np.maximum(self.topics.sum(axis=0), TINY)
        total = 0.0
        for group in groups(hidden, everything, self.topics.shape[1]):
            p = np.matmul(likely[group.words], shares[group.rows][:, :, None])[:, :, 0].astype(np.float64)
            total += float(np.sum(group.counts * np.log(p, where=group.counts > 0, out=np.zeros_like(p))))
        return float(np.exp(-total / hidden.counts.sum(dtype=np.float64)))

    def save(self, folder: Path) -> None:
        """All that the next epoch needs."""
        checkpoint.write(folder, {"topics": self.topics, "minibatches": np.array(self.minibatches)}, self.rng)

    def load(self, folder: Path) -> None:
        """Load the state that `save` wrote."""
        found = checkpoint.read(folder, self.rng)
        self.topics, self.minibatches = found["topics"], int(found["minibatches"])

    def _next_articles(self) -> np.ndarray:
        """Each pass over the articles has an order of its own, known from the seed: there is nothing to save."""
        passes, place = divmod(self.minibatches, len(self.train) // MINIBATCH)
        return _order(self.seed, passes, len(self.train))[place * MINIBATCH : (place + 1) * MINIBATCH]

    def _step(self, rows: np.ndarray) -> None:
        words = expected_words(self.topics)
        chosen = groups(self.train, rows, self.topics.shape[1])
        parts = [group.shares(words, np.exp(psi(group.infer(words, self.config["alpha"])))) for group in chosen]
        found = word_topics(parts, self.train.vocabulary)
        found *= words
        found *= np.float32(len(self.train) / len(rows))
        found += np.float32(self.config["eta"])
        self.minibatches += 1
        rate = np.float32(self.config["learning_rate"] * self.minibatches ** -self.config["decay"])
        self.topics *= 1 - rate
        self.topics += rate * found


def expected_words(topics: np.ndarray) -> np.ndarray:
    """Geometric means exp E[log beta] of the words' probabilities in each topic; 0 where a weight is 0."""
    return np.asarray(np.exp(psi(topics) - psi(topics.sum(axis=0))))


@dataclass(frozen=True)
class Group:
    """Articles of about the same length, padded to the longest: counts beyond an article's end are 0."""

    rows: np.ndarray  # (n,) which articles
    words: np.ndarray  # (n, L)
    counts: np.ndarray  # (n, L)
    lengths: np.ndarray  # (n,)

    def infer(self, words: np.ndarray, alpha: float) -> np.ndarray:
        """(n, K) weights gamma of the articles' topics, by coordinate ascent."""
        B, K = words[self.words], words.shape[1]
        gamma = np.repeat(np.float32(alpha) + self.counts.sum(axis=1, keepdims=True) / np.float32(K), K, axis=1)
        for _ in range(ITERATIONS):
            expected = np.exp(psi(gamma))
            p = np.matmul(B, expected[:, :, None])[:, :, 0]
            shares = self.counts / np.maximum(p, TINY)
            gamma = np.float32(alpha) + expected * np.matmul(shares[:, None, :], B)[:, 0, :]
        return gamma

    def shares(self, words: np.ndarray, expected: np.ndarray) -> Shares:
        """What the articles say of the words' topics, given exp E[log theta] of each article."""
        p = np.matmul(words[self.words], expected[:, :, None])[:, :, 0]
        there = np.arange(self.words.shape[1]) < self.lengths[:, None]
        return Shares((self.counts / np.maximum(p, TINY))[there], self.words[there], self.lengths, expected)


@dataclass(frozen=True)
class Shares:
    """Counts over probabilities, article by article, and the articles' topics."""

    values: np.ndarray  # (entries,)
    words: np.ndarray  # (entries,)
    lengths: np.ndarray  # (n,)
    topics: np.ndarray  # (n, K)


def word_topics(parts: Sequence[Shares], vocabulary: int) -> np.ndarray:
    """(V, K) sums over articles of counts times topic shares, but for the factor exp E[log beta]."""
    topics = np.concatenate([part.topics for part in parts])
    starts = np.concatenate([[0], np.cumsum(np.concatenate([part.lengths for part in parts]))])
    values, words = np.concatenate([part.values for part in parts]), np.concatenate([part.words for part in parts])
    return np.asarray(csc_matrix((values, words, starts), shape=(vocabulary, len(topics))) @ topics)


def groups(articles: data.Articles, rows: np.ndarray, topics: int) -> Iterator[Group]:
    """These articles, sorted by length and cut so that each group's words times topics stay close at hand."""
    lengths = articles.starts[rows + 1] - articles.starts[rows]
    order = np.argsort(lengths, kind="stable")
    first = 0
    while first < len(order):
        last = first + 1
        while last < len(order) and (last - first + 1) * lengths[order[last]] * topics <= AT_ONCE:
            last += 1
        chosen = order[first:last]
        place = np.arange(max(lengths[chosen[-1]], 1))
        there = place < lengths[chosen][:, None]
        entries = np.where(there, articles.starts[rows[chosen]][:, None] + place, 0)
        counts = np.where(there, articles.counts[entries], np.float32(0))
        yield Group(rows[chosen], articles.words[entries], counts, lengths[chosen])
        first = last


@cache
def _halves(count: int) -> tuple[data.Articles, data.Articles]:
    held_out = data.articles()[1].part(0, count)
    return held_out.every_other_word(odd=False), held_out.every_other_word(odd=True)


@cache
def _order(seed: int, passes: int, count: int) -> np.ndarray:
    return np.random.default_rng([seed, passes]).permutation(count)
