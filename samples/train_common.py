"""What the two training scripts share: the data, the training loop, a numpy witness for the
finished model, and saving.

The witness reads the weights back from the finished Core ML message and computes the network with
nothing but numpy, so a wrong weight order or a forgotten bias is found before a file is written.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

HERE = Path(__file__).parent
TEST_IMAGES = 360
DATA_NOTE = (
    "handwritten digits, 8 x 8 pixels in 0..1, from scikit-learn (E. Alpaydin and C. "
    "Kaynak, UCI machine learning repository, CC BY 4.0)"
)


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(train images f32[N,8,8], train labels, test images f32[360,8,8], test labels); the split
    is stratified and fixed.
    """
    data = load_digits()
    images = (data.images / 16).astype(np.float32)
    train_x, test_x, train_y, test_y = train_test_split(
        images, data.target, test_size=TEST_IMAGES, stratify=data.target, random_state=0
    )
    return train_x, train_y.astype(np.int64), test_x, test_y.astype(np.int64)


def train(net: torch.nn.Module, x: np.ndarray, y: np.ndarray, epochs: int) -> None:
    """Cross entropy, Adam with a cosine schedule, batches of 32. Leaves the network in
    evaluation mode.
    """
    images, labels = torch.from_numpy(x), torch.from_numpy(y)
    optimiser = torch.optim.Adam(net.parameters(), lr=3e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    for epoch in range(epochs):
        net.train()
        total = 0.0
        for batch in torch.randperm(len(labels)).split(32):
            loss = torch.nn.functional.cross_entropy(net(images[batch]), labels[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += loss.item() * len(batch)
        schedule.step()
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1:3}  loss {total / len(labels):.4f}")
    net.eval()


def save(
    spec: Any,
    name: str,
    input_name: str,
    inputs: np.ndarray,
    labels: np.ndarray,
    expected: Callable[[np.ndarray], np.ndarray],
) -> None:
    """Checks the message against the trained network on every test sample, then writes NAME.mlmodel
    and NAME.npz.

    `inputs` is [N, *declared input shape], `expected(inputs[i])` the trained network's
    probabilities [10].
    """
    own = np.stack([run_spec(spec, sample) for sample in inputs])
    trained = np.stack([expected(sample) for sample in inputs])
    difference = float(np.abs(own - trained).max())
    accuracy = float((own.argmax(1) == labels).mean())
    print(
        f"{name}: accuracy {accuracy:.4f} on {len(labels)} test samples; numpy against torch: "
        f"max difference {difference:.2g}"
    )
    if difference > 1e-5:
        raise SystemExit("the Core ML message is not the network that was trained")
    if accuracy <= 0.95:
        raise SystemExit("not good enough to be a sample")
    spec.description.metadata.shortDescription = f"{name}: {DATA_NOTE}"
    spec.description.metadata.license = "Apache-2.0"
    (HERE / f"{name}.mlmodel").write_bytes(spec.SerializeToString(deterministic=True))
    np.savez_compressed(HERE / f"{name}.npz", **{input_name: inputs, "labels": labels})


def run_spec(spec: Any, sample: np.ndarray) -> np.ndarray:
    """The network in a Core ML message on one sample, in numpy; the result is flattened to [10].

    Works on the layers that the samples use. Blobs are [C,H,W] in the convolutional network, of any
    rank in the recurrent one.
    """
    blobs = {spec.description.input[0].name: sample.astype(np.float64)}
    for layer in spec.neuralNetwork.layers:
        kind = layer.WhichOneof("layer")
        results = LAYERS[kind](getattr(layer, kind), *[blobs[name] for name in layer.input])
        blobs.update(zip(layer.output, results, strict=True))
    return blobs[spec.description.output[0].name].reshape(-1)


def _weights(blob: Any, *shape: int) -> np.ndarray:
    return np.array(blob.floatValue, np.float64).reshape(shape)


def _convolution(p: Any, x: np.ndarray) -> tuple[np.ndarray]:
    """3 x 3, stride 1, as many zeros around as keep the size."""
    w = _weights(p.weights, p.outputChannels, p.kernelChannels, *p.kernelSize)
    height, width = x.shape[1:]
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    windows = np.stack(
        [padded[:, i : i + height, j : j + width] for i in range(3) for j in range(3)], axis=1
    )  # [C, 9, H, W]
    y = np.tensordot(w.reshape(*w.shape[:2], 9), windows, axes=2)
    return (y + (_weights(p.bias, -1, 1, 1) if p.hasBias else 0.0),)


def _batchnorm(p: Any, x: np.ndarray) -> tuple[np.ndarray]:
    gamma, beta, mean, variance = (
        _weights(b, -1, 1, 1) for b in (p.gamma, p.beta, p.mean, p.variance)
    )
    return ((x - mean) / np.sqrt(variance + p.epsilon) * gamma + beta,)


def _activation(p: Any, x: np.ndarray) -> tuple[np.ndarray]:
    assert p.WhichOneof("NonlinearityType") == "ReLU"
    return (np.maximum(x, 0.0),)


def _pooling(p: Any, x: np.ndarray) -> tuple[np.ndarray]:
    """Maximum of 2 x 2, stride 2."""
    channels, height, width = x.shape
    return (x.reshape(channels, height // 2, 2, width // 2, 2).max(axis=(2, 4)),)


def _inner_product(p: Any, x: np.ndarray) -> tuple[np.ndarray]:
    y = x.reshape(-1) @ _weights(p.weights, p.outputChannels, p.inputChannels).T
    return (y + _weights(p.bias, -1),)


def _softmax(p: Any, x: np.ndarray) -> tuple[np.ndarray]:
    e = np.exp(x - x.max())
    return (e / e.sum(),)


def _lstm(p: Any, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x [Seq,1,C,1,1]; only the last hidden state is an output, as Core ML does with
    sequenceOutput off.
    """
    size, w = p.outputVectorSize, p.weightParams
    h, c = np.zeros(size), np.zeros(size)

    def gate(name: str, step: np.ndarray) -> np.ndarray:
        return (
            _weights(getattr(w, f"{name}WeightMatrix"), size, p.inputVectorSize) @ step
            + _weights(getattr(w, f"{name}RecursionMatrix"), size, size) @ h
            + _weights(getattr(w, f"{name}BiasVector"), size)
        )

    for step in x.reshape(len(x), -1):
        i, f, o = (
            1 / (1 + np.exp(-gate(name, step)))
            for name in ("inputGate", "forgetGate", "outputGate")
        )
        c = f * c + i * np.tanh(gate("blockInput", step))
        h = o * np.tanh(c)
    last = h.reshape(1, 1, size, 1, 1)
    return last, last, c.reshape(1, 1, size, 1, 1)


LAYERS: dict[str, Callable[..., tuple[np.ndarray, ...]]] = {
    "convolution": _convolution,
    "batchnorm": _batchnorm,
    "activation": _activation,
    "pooling": _pooling,
    "flatten": lambda p, x: (x.reshape(-1),),
    "innerProduct": _inner_product,
    "softmax": _softmax,
    "expandDims": lambda p, x: (np.expand_dims(x, tuple(p.axes)),),
    "squeeze": lambda p, x: (np.squeeze(x, tuple(p.axes)),),
    "uniDirectionalLSTM": _lstm,
    "softmaxND": _softmax,
}
