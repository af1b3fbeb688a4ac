"""Comparison of the result dimensions in a table with those that shape inference determines.

Each operation is lifted on operands of the dimensions that the table states, so that one wrong
number is one finding. Dimensions that inference cannot determine are not checked, nor are
operations that netconv cannot express. Three things are not checked here:

* sizes of coordinates (`SIZES`): the operators that find boxes take the coordinates one by one, and
  would not notice more of them than there are
* that keys of a HASHTABLE_LOOKUP ascend, one for each row of the values: an operator may take them
  in any order
* the scratch of an LSTM whose optional weights are inputs: a run has it, of three or four gates
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import onnx_ir as ir

from converter.errors import MappingError
from converter.formats.nnapi.findings import Findings
from converter.formats.nnapi.lift import SubgraphLift
from converter.formats.nnapi.operations import Binding, arguments_of, bind
from converter.formats.nnapi.quantization import DATA_TYPES
from converter.formats.nnapi.repeated import signature
from converter.formats.nnapi.table import Dimensions, Lifetime, Operation, Subgraph, fits
from converter.graph.build import new_model
from converter.mapping.conversion_errors import CONVERSION_ERRORS, code_message_help

# operation, argument: meaning of its last dimension
SIZES = {
    ("AXIS_ALIGNED_BBOX_TRANSFORM", "rois"): 4,
    ("AXIS_ALIGNED_BBOX_TRANSFORM", "image_info"): 2,
    ("BOX_WITH_NMS_LIMIT", "rois_out"): 4,
    ("DETECTION_POSTPROCESSING", "anchors"): 4,
    ("GENERATE_PROPOSALS", "anchors"): 4,
    ("GENERATE_PROPOSALS", "image_info"): 2,
    ("GENERATE_PROPOSALS", "rois_out"): 4,
    ("HEATMAP_MAX_KEYPOINT", "boxes"): 4,
    ("RANDOM_MULTINOMIAL", "seeds"): 2,
    ("ROI_ALIGN", "rois"): 4,
    ("ROI_POOLING", "rois"): 4,
}


def check_shapes(subgraph: Subgraph, operations: Sequence[int], found: Findings) -> None:
    """Check the shapes of the operations with these indices; the others cannot be checked."""
    lifting, known = _ShapeLift(subgraph, found), set[Hashable]()
    for position in operations:
        before, same = len(found), signature(subgraph.operations[position], subgraph)
        if same is None or same not in known:
            lifting.check(position)
        if len(found) == before:
            known.add(same)


class _ShapeLift(SubgraphLift):
    """Lift operations one by one, on operands with the dimensions that the table declares."""

    def __init__(self, subgraph: Subgraph, found: Findings) -> None:
        super().__init__(subgraph, new_model()[1], "")
        self.found, self.lifetimes = found, subgraph.lifetimes()
        self.enter_constants()

    def check(self, position: int) -> None:
        operation = self.subgraph.operations[position]
        if operation.type in ("IF", "WHILE"):
            return  # their operands are those of other subgraphs
        for i in (*operation.inputs, *operation.outputs):
            operand = self.subgraph.operands[i]
            if i not in self.values and self.lifetimes[i] is not Lifetime.NO_VALUE:
                shape = None if operand.shape is None else [n or None for n in operand.shape]
                self.values[i] = self.b.input(self.name(i), DATA_TYPES[operand.type], shape)
        self.location = f"operations[{position}]"
        binding = bind(operation, self.subgraph)
        try:
            _check_sizes(operation, binding, self.subgraph)
            self.lift(operation, binding)
        except CONVERSION_ERRORS as e:
            code, message, _ = code_message_help(e)
            if code.startswith("R"):
                shapes = (
                    f"{argument.name} {self.subgraph.operands[i].dimensions}"
                    for location, argument, i in arguments_of(binding)
                    if location.startswith("inputs") and self.subgraph.operands[i].dimensions
                )
                declared = (", ".join(shapes),)
                kind = operation.type
                self.found.add(self.location, message, code=code, kind=kind, evidence=declared)

    def settle(self, operation: Operation, results: Sequence[ir.Value]) -> None:
        """The dimensions that were inferred against those that the table states."""
        for k, (index, value) in enumerate(zip(operation.outputs, results, strict=False)):
            operand, inferred = self.subgraph.operands[index], dimensions(value)
            if operand.type.is_tensor and not fits(operand.shape, inferred):
                message = (
                    f"the inferred dimensions of the output are {inferred}, but the "
                    "operand declares "
                )
                message += str(operand.dimensions)
                location = f"{self.location}.outputs[{k}]"
                self.found.add(location, message, index, kind=operation.type)


def _check_sizes(operation: Operation, binding: Binding, subgraph: Subgraph) -> None:
    name = binding.spec.name
    for _, argument, index in arguments_of(binding):
        dims, size = subgraph.operands[index].dimensions, SIZES.get((name, argument.name))
        if size and dims and dims[-1] not in (0, size):
            raise MappingError(f"{argument.name} must have {size} elements, got {dims[-1]}", "R105")
    if name != "HASHTABLE_LOOKUP":
        return
    keys, values = (subgraph.operands[i] for i in operation.inputs[1:3])
    if keys.dimensions and values.dimensions and not fits(keys.dimensions, values.dimensions[:1]):
        raise MappingError(
            f"{keys.dimensions[0]} keys are given for {values.dimensions[0]} values", "R105"
        )
    if keys.value is not None and (np.diff(keys.array().reshape(-1)) < 0).any():
        raise MappingError("the keys must be in ascending order", "R105")


def dimensions(value: ir.Value) -> Dimensions:
    """Return the inferred shape in a table's form: a tensor has at least one axis."""
    if value.shape is None:
        return None
    return [d if isinstance(d, int) else 0 for d in value.shape] or [1]
