"""DrJAX: a round as one jitted program, `map_fn` over the clients, `scan` over the steps, a weighted mean."""

import drjax
import jax
import jax.numpy as jnp
import numpy as np
from given import given, report

work = given()
clients, size = len(work.x), work.batch_size
sizes = np.array([len(y) for y in work.y])
steps = work.epochs * -(-sizes.max() // size)
images, labels = (
    jnp.concatenate([jnp.asarray(x) for x in work.x]),
    jnp.concatenate([jnp.asarray(y) for y in work.y]),
)
starts = np.cumsum(sizes) - sizes
test_x, test_y = jnp.asarray(work.test_x), jnp.asarray(work.test_y)
generator = np.random.default_rng(1)


def batches():
    """Positions (clients, steps, size) of the examples of each mini-batch, and which of them count.

    All clients have as many steps, so those with fewer examples have steps in which nothing counts.
    """
    chosen = np.zeros((clients, steps * size), np.int32)
    counts = np.zeros((clients, steps * size), np.float32)
    a_epoch = -(-sizes // size) * size  # the last mini-batch of an epoch may not be full
    for k in range(clients):
        for epoch in range(work.epochs):
            place = slice(epoch * a_epoch[k], epoch * a_epoch[k] + sizes[k])
            chosen[k, place] = starts[k] + generator.permutation(sizes[k])
            counts[k, place] = 1.0
    return chosen.reshape(clients, steps, size), counts.reshape(clients, steps, size)


def logits(weights, x):
    """The network, 431,080 parameters: x (n, 1, 28, 28) -> (n, 10)."""
    for layer in ("conv1", "conv2"):
        x = jax.lax.conv(x, weights[f"{layer}.weight"], (1, 1), "VALID")
        x = jax.nn.relu(x + weights[f"{layer}.bias"][:, None, None])
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    x = x.reshape(len(x), -1)
    x = jax.nn.relu(x @ weights["fc1.weight"].T + weights["fc1.bias"])
    return x @ weights["fc2.weight"].T + weights["fc2.bias"]


def loss(weights, x, y, counts):
    """The mean cross-entropy of the examples that count."""
    losses = -jnp.take_along_axis(jax.nn.log_softmax(logits(weights, x)), y[:, None], axis=1)[:, 0]
    return (losses * counts).sum() / jnp.maximum(counts.sum(), 1.0)


def local(weights, chosen, counts):
    """The weights after a client's local steps."""

    def step(now, batch):
        positions, count = batch
        slope = jax.grad(loss)(now, images[positions], labels[positions], count)
        return jax.tree.map(lambda w, g: w - work.lr * g, now, slope), None

    return jax.lax.scan(step, weights, (chosen, counts))[0]


@jax.jit
@drjax.program(placements={"clients": clients})
def a_round(weights, chosen, counts, shares):
    """The new weights."""
    trained = drjax.map_fn(local, (drjax.broadcast(weights), chosen, counts))
    # Each array alone: the function takes weights only for a value that is one array.
    return jax.tree.map(lambda array: drjax.reduce_weighted_mean(array, shares), trained)


@jax.jit
def accuracy(weights):
    """The share of right predictions, in batches of 250."""
    parts = test_x.reshape(-1, 250, 1, 28, 28)
    return (jax.lax.map(lambda x: logits(weights, x).argmax(1), parts).reshape(-1) == test_y).mean()


weights = {name: jnp.asarray(value) for name, value in work.weights.items()}
for _ in range(work.rounds):
    weights = a_round(weights, *batches(), jnp.asarray(sizes, jnp.float32))
    report(float(accuracy(weights)) if len(test_x) else float(jax.block_until_ready(weights)["fc2.bias"][0]))
