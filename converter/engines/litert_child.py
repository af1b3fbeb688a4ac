"""Runs one `.tflite` file in a process of its own: LiteRT aborts on some models, and an abort cannot be caught.

    python litert_child.py MODEL INPUTS.npz OUTPUTS.npz

Arrays are called 0, 1, ... in the model's order. A refusal is one line on standard error and exit code 1.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def main(model: str, feeds: str, results: str) -> int:
    from ai_edge_litert.interpreter import Interpreter

    with np.load(feeds) as arrays:
        inputs: list[Any] = [arrays[str(i)] for i in range(len(arrays.files))]
    try:
        interpreter = Interpreter(model_path=model, num_threads=1)
        details = interpreter.get_input_details()
        for detail, value in zip(details, inputs, strict=True):
            if list(detail["shape"]) != list(value.shape):
                interpreter.resize_tensor_input(detail["index"], list(value.shape))
        interpreter.allocate_tensors()
        for detail, value in zip(details, inputs, strict=True):
            interpreter.set_tensor(detail["index"], value)
        interpreter.invoke()
        outputs = [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]
    except (RuntimeError, ValueError) as e:
        print("refused: " + str(e).strip().replace("\n", " "), file=sys.stderr)
        return 1
    found: dict[str, Any] = {str(i): value for i, value in enumerate(outputs)}
    np.savez(results, **found)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
