"""Shapes of recurrent operations and of those that find boxes: more rules for `shapes.py`."""

from __future__ import annotations

from converter.formats.nnapi.shapes import Arguments, Shape, agree, channels_last, expect, image, rule


def _cell(x: Arguments, prefix: str = "", features: int = 0, batch: int = 0) -> tuple[int, int]:
    """(output_size, num_units) of an LSTM cell after checking its weights against each other."""
    units = 0
    for gate in ("input", "forget", "cell", "output"):
        for weights, columns in (("input_to", features), ("recurrent_to", 0)):
            name = f"{prefix}{weights}_{gate}_weights"
            if x.given(name):
                units = agree(units, x.dim(name, 0), f"{name} and the number of units")
                agree(columns, x.dim(name, 1), f"{name} and the input size")
    states = ("output_state_in", "cell_state_in") if not prefix else (f"{prefix}activation_state_in", f"{prefix}cell_state_in")
    output = agree(x.dim(states[0], 1), x.dim(f"{prefix}recurrent_to_forget_weights", 1), "the output state and the recurrent weights")
    units = agree(units, x.dim(states[1], 1), "the cell state and the number of units")
    agree(batch, agree(x.dim(states[0], 0), x.dim(states[1], 0), "the states' batches"), "the batch and the states")
    _optional_groups(x, prefix)
    return output, units


def _optional_groups(x: Arguments, prefix: str) -> None:
    """Which optional operands of an LSTM cell must come together."""
    given = {n: x.given(prefix + n) for n in ("input_to_input_weights", "recurrent_to_input_weights", "input_gate_bias")}
    expect(len(set(given.values())) == 1, f"{prefix}{', '.join(given)} must be there together or not at all")
    full = given["input_gate_bias"]
    peephole = [x.given(f"{prefix}cell_to_{g}_weights") for g in ("forget", "output")]
    expect(len(set(peephole)) == 1, f"{prefix}cell_to_forget_weights and cell_to_output_weights must be there together or not at all")
    if full:
        expect(x.given(f"{prefix}cell_to_input_weights") == peephole[0], f"{prefix}cell_to_input_weights must be there exactly with the other peepholes")
    expect(x.given(f"{prefix}projection_weights") or not x.given(f"{prefix}projection_bias"), f"{prefix}projection_bias without projection_weights")


@rule("LSTM")
def lstm(x: Arguments) -> list[Shape]:
    batch = x.dim("input", 0)
    output, units = _cell(x, "", x.dim("input", 1), batch)
    gates = 0 if x.may_be_left_out("input_to_input_weights") else 4 if x.given("input_to_input_weights") else 3  # 0: as a run has it
    scratch = units * gates
    return [[batch, scratch], [batch, output], [batch, units], [batch, output]]


@rule("QUANTIZED_LSTM")
def quantized_lstm(x: Arguments) -> list[Shape]:
    batch = x.dim("input", 0)
    output, units = _cell(x, "", x.dim("input", 1), batch)
    return [[batch, output], [batch, units], [batch, output]]


@rule("QUANTIZED_16BIT_LSTM")
def quantized_16bit_lstm(x: Arguments) -> list[Shape]:
    return [x.shape("cell_state_in"), x.shape("output_in")]


@rule("RNN")
def rnn(x: Arguments) -> list[Shape]:
    units = _units(x, "weights", "recurrent_weights", "bias", x.dim("input", 1))
    state = [x.dim("input", 0), agree(units, x.dim("hidden_state_in", 1), "weights and hidden state")]
    return [state, list(state)]


def _units(x: Arguments, weights: str, recurrent: str, bias: str, features: int) -> int:
    agree(features, x.dim(weights, 1), "the input size and the weights")
    units = agree(x.dim(weights, 0), x.dim(recurrent, 0), "weights and recurrent weights")
    return agree(agree(units, x.dim(recurrent, 1), "the sides of the recurrent weights"), x.dim(bias, 0), "weights and bias")


@rule("SVDF")
def svdf(x: Arguments) -> list[Shape]:
    rank, batch = x.scalar("rank"), x.dim("input", 0)
    agree(x.dim("input", 1), x.dim("weights_feature", 1), "the input size and weights_feature")
    filters = agree(x.dim("weights_feature", 0), x.dim("weights_time", 0), "weights_feature and weights_time")
    expect(not rank or filters % rank == 0, f"rank {rank} does not divide {filters} filters")
    units = filters // rank if rank else 0
    if x.given("bias"):
        agree(units, x.dim("bias", 0), "units and bias")
    state = agree(filters * x.dim("weights_time", 1), x.dim("state_in", 1), "memory_size * filters and the state")
    return [[batch, state], [batch, units]]


def _sequence(x: Arguments) -> tuple[int, int, bool | None]:
    """(time, batch, whether time comes first) of `input`."""
    major = x.scalar("time_major")
    first, second = x.dim("input", 0), x.dim("input", 1)
    return (0, 0, None) if major is None else (first, second, True) if major else (second, first, False)


def _run(time: int, batch: int, major: bool | None, size: int) -> Shape:
    return [0, 0, size] if major is None else [time, batch, size] if major else [batch, time, size]


@rule("UNIDIRECTIONAL_SEQUENCE_LSTM")
def sequence_lstm(x: Arguments) -> list[Shape]:
    time, batch, major = _sequence(x)
    output, units = _cell(x, "", x.dim("input", 2), batch)
    return [_run(time, batch, major, output), [batch, output], [batch, units]]


@rule("UNIDIRECTIONAL_SEQUENCE_RNN")
def sequence_rnn(x: Arguments) -> list[Shape]:
    time, batch, major = _sequence(x)
    units = _units(x, "weights", "recurrent_weights", "bias", x.dim("input", 2))
    return [_run(time, batch, major, units), [batch, units]]


def _merged(x: Arguments, forward: Shape, backward: Shape, states: list[Shape]) -> list[Shape]:
    merge = x.scalar("merge_outputs")
    count = sum(v is not None for v in x.binding.outputs.values())
    single = x.binding.outputs["bw_output"] is None
    expect(merge is None or bool(merge) == single, "merge_outputs does not fit the number of outputs")
    if single:
        joined = [*forward[:2], forward[2] + backward[2] if forward[2] and backward[2] else 0] if forward and backward else None
        return [joined, *states][:count]
    return [forward, backward, *states][:count]


@rule("BIDIRECTIONAL_SEQUENCE_LSTM")
def bidirectional_lstm(x: Arguments) -> list[Shape]:
    time, batch, major = _sequence(x)
    features = x.dim("input", 2)
    # without auxiliary weights the auxiliary input, when given, is what the backward cell reads
    crossed = x.given("aux_input") and not x.given("fw_aux_input_to_forget_weights")
    fw, fw_units = _cell(x, "fw_", features, batch)
    bw, bw_units = _cell(x, "bw_", x.dim("aux_input", 2) if crossed else features, batch)
    states: list[Shape] = [[batch, fw], [batch, fw_units], [batch, bw], [batch, bw_units]]
    return _merged(x, _run(time, batch, major, fw), _run(time, batch, major, bw), states)


@rule("BIDIRECTIONAL_SEQUENCE_RNN")
def bidirectional_rnn(x: Arguments) -> list[Shape]:
    time, batch, major = _sequence(x)
    features = x.dim("input", 2)
    crossed = x.given("aux_input") and not x.given("fw_aux_weights")
    fw = _units(x, "fw_weights", "fw_recurrent_weights", "fw_bias", features)
    bw = _units(x, "bw_weights", "bw_recurrent_weights", "bw_bias", x.dim("aux_input", 2) if crossed else features)
    return _merged(x, _run(time, batch, major, fw), _run(time, batch, major, bw), [[batch, fw], [batch, bw]])


@rule("RANDOM_MULTINOMIAL")
def random_multinomial(x: Arguments) -> list[Shape]:
    agree(2, x.dim("seeds", 0), "the number of seeds")
    return [[x.dim("input", 0), x.scalar("samples") or 0]]


@rule("AXIS_ALIGNED_BBOX_TRANSFORM")
def bbox_transform(x: Arguments) -> list[Shape]:
    agree(4, x.dim("rois", 1), "the coordinates of a region")
    agree(2, x.dim("image_info", 1), "the size of an image")
    expect(x.dim("deltas", 1) % 4 == 0, "the deltas are not four for each class")
    return [[agree(x.dim("rois", 0), x.dim("deltas", 0), "regions and deltas"), x.dim("deltas", 1)]]


@rule("BOX_WITH_NMS_LIMIT")
def box_with_nms_limit(x: Arguments) -> list[Shape]:
    agree(x.dim("scores", 1) * 4, x.dim("rois", 1), "four coordinates for each class")
    agree(agree(x.dim("scores", 0), x.dim("rois", 0), "scores and regions"), x.dim("batch_index", 0), "regions and batch indexes")
    return [[0], [0, 4], [0], [0]]


@rule("DETECTION_POSTPROCESSING")
def detection_postprocessing(x: Arguments) -> list[Shape]:
    batch, most = agree(x.dim("scores", 0), x.dim("deltas", 0), "the batches"), max(x.scalar("max_detections") or 0, 0)
    agree(agree(x.dim("scores", 1), x.dim("deltas", 1), "scores and deltas"), x.dim("anchors", 0), "the anchors")
    agree(4, x.dim("anchors", 1), "the coordinates of an anchor")
    return [[batch, most], [batch, most, 4], [batch, most], [batch]]


@rule("GENERATE_PROPOSALS")
def generate_proposals(x: Arguments) -> list[Shape]:
    agree(4, x.dim("anchors", 1), "the coordinates of an anchor")
    agree(2, x.dim("image_info", 1), "the size of an image")
    return [[0], [0, 4], [0]]


@rule("HEATMAP_MAX_KEYPOINT")
def heatmap_max_keypoint(x: Arguments) -> list[Shape]:
    n, _, _, c = channels_last(x, "heatmaps")
    agree(4, x.dim("boxes", 1), "the coordinates of a box")
    n = agree(n, x.dim("boxes", 0), "heat maps and boxes")
    return [[n, c], [n, c, 2]] if x.scalar("nchw") is not None else [None, None]


@rule("ROI_ALIGN", "ROI_POOLING")
def roi(x: Arguments) -> list[Shape]:
    agree(4, x.dim("rois", 1), "the coordinates of a region")
    regions = agree(x.dim("rois", 0), x.dim("batch_index", 0), "regions and batch indexes")
    return [image(x, regions, x.scalar("out_height") or 0, x.scalar("out_width") or 0, channels_last(x, "input")[3])]
