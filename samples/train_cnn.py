"""Trains `digits_cnn.mlmodel`: image f32[1,8,8] -> probabilities f32[10], convolutions on the
classic [C,H,W] blobs of Core ML.

    pip install torch scikit-learn coremltools && python samples/train_cnn.py        (ten seconds)

The files it makes are part of the project; run it only to make others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from coremltools.models import datatypes
from coremltools.models.neural_network import NeuralNetworkBuilder
from torch import nn

from train_common import digits, save, train


def block(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()
    )


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([block(1, 16), block(16, 32), block(32, 32)])
        self.dense = nn.Linear(32 * 2 * 2, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks[0](x)
        x = nn.functional.max_pool2d(self.blocks[1](x), 2)
        x = nn.functional.max_pool2d(self.blocks[2](x), 2)
        return self.dense(nn.functional.dropout(x.flatten(1), 0.3, self.training))


def build(net: Net) -> Any:
    """The trained network as a Core ML message. Weights change their axes only as the builder's
    own layout asks.
    """
    builder = NeuralNetworkBuilder(
        [("image", datatypes.Array(1, 8, 8))], [("probabilities", datatypes.Array(10))]
    )
    blob = "image"
    for number, (conv, norm, _) in enumerate(net.blocks, 1):
        w = conv.weight.detach().numpy()  # [out, in, kh, kw]; the builder takes [kh, kw, in, out]
        builder.add_convolution(
            f"conv{number}",
            w.shape[1],
            w.shape[0],
            3,
            3,
            1,
            1,
            "same",
            1,
            w.transpose(2, 3, 1, 0),
            conv.bias.detach().numpy(),
            True,
            input_name=blob,
            output_name=f"conv{number}",
        )
        values = [
            t.detach().numpy()
            for t in (norm.weight, norm.bias, norm.running_mean, norm.running_var)
        ]
        builder.add_batchnorm(
            f"norm{number}",
            w.shape[0],
            *values,
            input_name=f"conv{number}",
            output_name=f"norm{number}",
            epsilon=norm.eps,
        )
        blob = f"relu{number}"
        builder.add_activation(blob, "RELU", f"norm{number}", blob)
        if number > 1:
            builder.add_pooling(f"pool{number}", 2, 2, 2, 2, "MAX", "VALID", blob, f"pool{number}")
            blob = f"pool{number}"
    builder.add_flatten("flatten", 0, blob, "flatten")
    w = net.dense.weight.detach().numpy()
    builder.add_inner_product(
        "dense",
        w,
        net.dense.bias.detach().numpy(),
        w.shape[1],
        w.shape[0],
        True,
        "flatten",
        "dense",
    )
    builder.add_softmax("probabilities", "dense", "probabilities")
    return builder.spec


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train_x, train_y, test_x, test_y = digits()
    net = Net()
    train(net, train_x[:, None], train_y, epochs=40)
    with torch.inference_mode():
        save(
            build(net),
            "digits_cnn",
            "image",
            test_x[:, None],
            test_y,
            lambda x: torch.softmax(net(torch.from_numpy(x[np.newaxis])), 1).numpy()[0],
        )


if __name__ == "__main__":
    main()
