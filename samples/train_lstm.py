"""Trains `digits_lstm.mlmodel`: rows f32[8,1,8] (row, batch, pixel) -> probabilities f32[1,10]. An
LSTM reads a digit row by row.

    pip install torch scikit-learn coremltools && python samples/train_lstm.py       (ten seconds)

The files it makes are part of the project; run it only to make others.
"""

from __future__ import annotations

from typing import Any

import torch
from coremltools.models import datatypes
from coremltools.models.neural_network import NeuralNetworkBuilder
from torch import nn

from train_common import digits, save, train

HIDDEN = 64


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, HIDDEN)
        self.dense = nn.Linear(HIDDEN, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [N,8,8]: the rows of N images."""
        hidden, _ = self.lstm(x.transpose(0, 1))
        return self.dense(nn.functional.dropout(hidden[-1], 0.2, self.training))


def build(net: Net) -> Any:
    """The trained network as a Core ML message with exact array shapes (specification 4).

    torch keeps the gates in the order input, forget, cell, output and two biases for each; Core ML
    (through the builder) wants input, forget, output, cell and their sum.
    """
    outputs = [("probabilities", datatypes.Array(1, 10))]
    builder = NeuralNetworkBuilder(
        [("rows", datatypes.Array(8, 1, 8))], outputs, disable_rank5_shape_mapping=True
    )
    builder.add_expand_dims("to_rank_5", "rows", "rows5", axes=(3, 4))
    i, f, g, o = range(4)
    lstm = {k: v.detach().numpy().reshape(4, HIDDEN, -1) for k, v in net.lstm.named_parameters()}
    bias = (lstm["bias_ih_l0"] + lstm["bias_hh_l0"])[..., 0]
    gates = (i, f, o, g)
    builder.add_unilstm(
        "lstm",
        [lstm["weight_hh_l0"][k] for k in gates],
        [lstm["weight_ih_l0"][k] for k in gates],
        [bias[k] for k in gates],
        HIDDEN, 8, ["rows5"], ["hidden5", "last_hidden5", "last_cell5"],
    )  # fmt: skip
    builder.add_squeeze("hidden", "hidden5", "hidden", axes=(0, 3, 4))
    w = net.dense.weight.detach().numpy()
    builder.add_inner_product(
        "dense", w, net.dense.bias.detach().numpy(), w.shape[1], w.shape[0], True, "hidden", "dense"
    )
    builder.add_softmax_nd("probabilities", "dense", "probabilities", axis=-1)
    return builder.spec


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train_x, train_y, test_x, test_y = digits()
    net = Net()
    train(net, train_x, train_y, epochs=60)
    with torch.inference_mode():
        save(
            build(net),
            "digits_lstm",
            "rows",
            test_x[:, :, None],
            test_y,
            lambda x: torch.softmax(net(torch.from_numpy(x[None, :, 0])), 1).numpy()[0],
        )


if __name__ == "__main__":
    main()
