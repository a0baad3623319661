"""The three problems: exact save and load, the limits at 0, and a plain reference for each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks import tables
from experiments.matrix_factorisation import MatrixFactorisation
from experiments.online_lda import Group, OnlineLda
from experiments.problems import FewArticles, FewImages
from scipy.special import psi

from experiments import data, matrix_factorisation, online_lda, problems
from freezethaw.runtime.check import check
from freezethaw.trainers import named

ROOT = Path(__file__).parents[2]
IMAGES = {"norm": 2.0, "l2": 1e-3, "minibatch": 100, "dropout": 0.3, "learning_rate": 0.05}
ARTICLES = {"topics": 7, "alpha": 0.1, "eta": 0.1, "learning_rate": 0.7, "decay": 0.5}
RATINGS = {"rank": 5, "learning_rate": 0.02, "l2": 0.05}


def has(name):
    folder = tables.data_folder()
    return folder is not None and (folder / name).is_dir()


needs_images = pytest.mark.skipif(not has("mnist"), reason="no MNIST: set FREEZETHAW_DATA")
needs_articles = pytest.mark.skipif(not has("wikipedia_bow"), reason="no Wikipedia articles: set FREEZETHAW_DATA")
needs_ratings = pytest.mark.skipif(not has("movielens100k"), reason="no MovieLens 100K: set FREEZETHAW_DATA")


@pytest.mark.parametrize(
    ("name", "config"),
    [
        pytest.param("experiments.problems:FewImages", IMAGES, marks=needs_images),
        pytest.param("experiments.problems:FewArticles", ARTICLES, marks=needs_articles),
        pytest.param("experiments.matrix_factorisation:MatrixFactorisation", RATINGS, marks=needs_ratings),
    ],
)
def test_a_thawed_run_goes_on_as_if_it_had_never_been_frozen(name, config):
    report = check(named(name, ROOT), config)
    assert report.passed, report
    assert not report.notes
    assert report.thawed == report.uninterrupted
    assert report.thawed[-1] < report.thawed[0]


@pytest.mark.parametrize("problem", problems.PROBLEMS.values(), ids=lambda p: p.name)
def test_the_ranges_are_the_papers(problem):
    ranges = {name: (p.low, p.high) for name, p in problem.space.parameters.items()}
    expected = {
        "logistic": {
            "norm": (0.1, 20.0),
            "l2": (0.0, 1.0),
            "minibatch": (20, 2000),
            "dropout": (0.0, 0.75),
            "learning_rate": (1e-6, 1e-1),
        },
        "lda": {
            "topics": (2, 100),
            "alpha": (0.0, 2.0),
            "eta": (0.0, 2.0),
            "learning_rate": (0.1, 1.0),
            "decay": (1e-5, 1.0),
        },
        "pmf": {"rank": (0, 50), "learning_rate": (1e-4, 1e-1), "l2": (0.0, 1.0)},
    }
    assert ranges == expected[problem.name]
    assert problem.max_epochs == 100


# Logistic regression.


@needs_images
def test_no_weights_exceed_the_norm_and_the_penalty_shrinks_them():
    held = FewImages(IMAGES | {"norm": 0.1, "dropout": 0.0, "l2": 0.0}, 1)
    held.train_epoch()
    norms = np.linalg.norm(held.weights, axis=0)
    assert norms.max() == pytest.approx(0.1, rel=1e-5)
    free, shrunk = (FewImages(IMAGES | {"norm": 20.0, "l2": l2}, 1) for l2 in (0.0, 1.0))
    assert free.train_epoch() < 0.3
    shrunk.train_epoch()
    assert np.linalg.norm(shrunk.weights) < 0.5 * np.linalg.norm(free.weights)


@needs_images
def test_without_dropout_inputs_are_the_pixels_and_with_it_their_mean_stays():
    rows = np.arange(500)
    plain = FewImages(IMAGES | {"dropout": 0.0}, 1)._inputs(rows)
    assert plain == pytest.approx(data.images().pixels[rows] / 255, abs=1e-6)
    dropped = FewImages(IMAGES | {"dropout": 0.75}, 1)._inputs(rows)
    inked = plain > 0
    assert np.mean(dropped[inked] == 0) == pytest.approx(0.75, abs=0.01)
    assert dropped.mean() == pytest.approx(plain.mean(), rel=0.01)


@needs_images
def test_a_step_is_the_gradient_of_the_penalised_cross_entropy():
    config = IMAGES | {"dropout": 0.0, "norm": 20.0, "learning_rate": 1e-3, "l2": 0.5}
    model = FewImages(config, 1)
    rng = np.random.default_rng(0)
    model.weights[:] = 0.1 * rng.standard_normal(model.weights.shape)
    x, labels, W = model._inputs(np.arange(50)), model.data.labels[:50], model.weights.astype(float)

    def objective(w):
        scores = x.astype(float) @ w
        log_p = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        return -log_p[np.arange(50), labels].mean() + 0.5 * np.sum(w**2)

    model._step(x, labels)
    direction = rng.standard_normal(W.shape)
    slope = (objective(W + 1e-5 * direction) - objective(W - 1e-5 * direction)) / 2e-5
    assert np.sum((W - model.weights) * direction) / 1e-3 == pytest.approx(slope, rel=1e-3)


# Matrix factorisation.


@needs_ratings
def test_rank_0_is_the_mean_and_the_biases():
    model = MatrixFactorisation(RATINGS | {"rank": 0}, 1)
    mean, bias_of_user, bias_of_item = model.mean, np.zeros(data.USERS), np.zeros(data.ITEMS)
    order = np.random.default_rng(1).permutation(len(model.train))
    for start in range(0, len(order), matrix_factorisation.MINIBATCH):
        r = model.train.rows(order[start : start + matrix_factorisation.MINIBATCH])
        b, c = bias_of_user[r.user], bias_of_item[r.item]
        error = r.rating - (mean + b + c)
        np.add.at(bias_of_user, r.user, 0.02 * (2 * error - 0.05 * b))
        np.add.at(bias_of_item, r.item, 0.02 * (2 * error - 0.05 * c))
    model.train_epoch()
    h = model.held_out
    predicted = np.clip(mean + bias_of_user[h.user] + bias_of_item[h.item], 1, 5)
    assert model.error() == pytest.approx(float(np.sqrt(np.mean((predicted - h.rating) ** 2))), rel=1e-9)
    assert model.users.shape == (data.USERS, 2)


@needs_ratings
def test_a_rating_moves_its_user_and_its_item_only_and_the_ones_stay():
    model = MatrixFactorisation(RATINGS | {"l2": 0.0}, 1)
    users, items = model.users.copy(), model.items.copy()
    model._step(np.array([3]), np.array([4]), np.array([5.0]))
    assert np.flatnonzero((model.users != users).any(axis=1)).tolist() == [3]
    assert np.flatnonzero((model.items != items).any(axis=1)).tolist() == [4]
    error = 5.0 - model.mean - users[3] @ items[4]
    expected = users[3] + 0.02 * 2 * error * items[4]
    expected[-1] = 1.0
    assert model.users[3] == pytest.approx(expected, rel=1e-12)
    assert (model.users[:, -1] == 1).all()
    assert (model.items[:, -2] == 1).all()


@needs_ratings
def test_training_and_held_out_ratings_are_apart_and_a_diverged_run_says_so():
    train, held_out = data.ratings()
    assert (len(train), len(held_out)) == (90_000, 10_000)
    pairs = set(zip(train.user.tolist(), train.item.tolist(), strict=True))
    assert pairs.isdisjoint(zip(held_out.user.tolist(), held_out.item.tolist(), strict=True))
    model = MatrixFactorisation(RATINGS, 1)
    model.users[0, 0] = np.inf
    assert np.isnan(model.error())


# Online LDA.


def small_articles():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 12, size=30)
    words = np.concatenate([rng.choice(40, n, replace=False) for n in lengths]).astype(np.int32)
    counts = rng.integers(1, 5, size=len(words)).astype(np.float32)
    return data.Articles(counts, words, np.concatenate([[0], np.cumsum(lengths)]), 40)


@pytest.mark.parametrize("alpha", [0.3, 0.0])
def test_articles_in_padded_groups_are_as_articles_one_by_one(alpha, monkeypatch):
    monkeypatch.setattr(online_lda, "AT_ONCE", 200)  # several groups
    articles = small_articles()
    topics = np.random.default_rng(1).gamma(1.0, 1.0, (40, 6)).astype(np.float32)
    words = online_lda.expected_words(topics)
    rows = np.arange(len(articles))
    with np.errstate(all="ignore"):
        chosen = list(online_lda.groups(articles, rows, 6))
        weights = np.empty((len(rows), 6))
        for group in chosen:
            weights[group.rows] = group.infer(words, alpha)
        parts = [g.shares(words, np.exp(psi(g.infer(words, alpha)))) for g in chosen]
        found = online_lda.word_topics(parts, 40) * words
    assert len(chosen) > 3
    assert sorted(np.concatenate([group.rows for group in chosen])) == rows.tolist()
    expected = np.zeros((40, 6))
    for d in rows:  # Hoffman, Blei and Bach (2010), algorithm 2
        entries = slice(articles.starts[d], articles.starts[d + 1])
        ids, counts = articles.words[entries], articles.counts[entries].astype(float)
        B = words[ids].astype(float)
        gamma = np.full(6, alpha + counts.sum() / 6)
        for _ in range(online_lda.ITERATIONS):
            theta = np.exp(psi(gamma))
            gamma = alpha + theta * ((counts / (B @ theta)) @ B)
        assert weights[d] == pytest.approx(gamma, rel=1e-3, abs=1e-4)
        theta = np.exp(psi(gamma))
        np.add.at(expected, ids, (counts / (B @ theta))[:, None] * theta * B)
    assert found == pytest.approx(expected, rel=1e-3, abs=1e-3)
    assert found.sum() == pytest.approx(articles.counts.sum(), rel=1e-4)


def test_the_halves_of_an_article_share_no_word_and_are_the_article():
    articles = small_articles()
    even, odd = articles.every_other_word(odd=False), articles.every_other_word(odd=True)
    assert even.counts.sum() + odd.counts.sum() == articles.counts.sum()
    for d in range(len(articles)):
        ids = articles.words[articles.starts[d] : articles.starts[d + 1]]
        assert even.words[even.starts[d] : even.starts[d + 1]].tolist() == ids[::2].tolist()
        assert odd.words[odd.starts[d] : odd.starts[d + 1]].tolist() == ids[1::2].tolist()


@needs_articles
def test_base_measures_of_0_are_the_limit_of_small_ones():
    def loss(**changed):
        return FewArticles(ARTICLES | changed, 1).train_epoch()

    assert loss(alpha=0.0) == pytest.approx(loss(alpha=1e-6), rel=1e-3)
    assert loss(eta=0.0) == pytest.approx(loss(eta=1e-6), rel=1e-3)
    assert np.isfinite(loss(alpha=0.0, eta=0.0))
    # at rate 1 the first minibatch is all that a topic knows: with no base measure its other words are impossible
    assert loss(eta=0.0, learning_rate=1.0) == np.inf
    assert loss(eta=0.5, learning_rate=1.0) < loss(eta=1e-6, learning_rate=1.0) < loss(eta=1e-12, learning_rate=1.0)


@needs_articles
def test_an_epoch_is_the_next_5000_articles_and_a_pass_meets_each_once():
    model = OnlineLda(ARTICLES, 1)
    assert OnlineLda.articles // online_lda.MINIBATCH == 10
    seen = []
    for number in range(len(model.train) // online_lda.MINIBATCH):
        model.minibatches = number
        seen.append(model._next_articles())
    assert len(np.unique(np.concatenate(seen))) == sum(len(rows) for rows in seen) == 128_500
    model.minibatches += 1
    assert model._next_articles().tolist() != seen[0].tolist()


@needs_articles
def test_perplexity_is_that_of_a_guess_where_topics_say_nothing():
    model = FewArticles(ARTICLES, 1)
    model.topics[:] = 1.0
    with np.errstate(all="ignore"):
        assert model.perplexity() == pytest.approx(model.train.vocabulary, rel=1e-4)


def test_a_group_pads_with_nothing():
    articles = small_articles()
    for group in online_lda.groups(articles, np.array([4, 2, 9]), 6):
        assert isinstance(group, Group)
        assert group.counts.sum(axis=1) == pytest.approx(
            [articles.counts[articles.starts[d] : articles.starts[d + 1]].sum() for d in group.rows]
        )
