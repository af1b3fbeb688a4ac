"""Zhouyi Compass IR: findings of `validate` about documents that can be read but are not sound, and
its table of layer types.
"""

from __future__ import annotations

import pytest

from converter.formats.zhouyi.codec import parse_ir
from converter.formats.zhouyi.operators import (
    Operator,
    common,
    find_operator,
    operators,
    type_aliases,
)
from converter.formats.zhouyi.validate import _TYPES, validate

TEXT = """model_name=m
layer_number=3
input_tensors=[x_0]
output_tensors=[z_0]

layer_id=0
layer_name=x
layer_type=Input
layer_bottom=[]
layer_bottom_shape=[]
layer_bottom_type=[]
layer_top=[x_0]
layer_top_shape=[[1,4,4,3]]
layer_top_type=[float32]

layer_id=1
layer_name=y
layer_type=Pooling
layer_bottom=[x_0]
layer_bottom_shape=[[1,4,4,3]]
layer_bottom_type=[float32]
layer_top=[y_0]
layer_top_shape=[[1,2,2,3]]
layer_top_type=[float32]
kernel_x=2
kernel_y=2
stride_x=2
stride_y=2
pad_left=0
pad_right=0
pad_top=0
pad_bottom=0
dilation_x=1
dilation_y=1
method=AVG
ceil_mode=false
count_include_pad=true

layer_id=2
layer_name=z
layer_type=BiasAdd
layer_bottom=[y_0]
layer_bottom_shape=[[1,2,2,3]]
layer_bottom_type=[float32]
layer_top=[z_0]
layer_top_shape=[[1,2,2,3]]
layer_top_type=[float32]
biases_type=float32
biases_offset=0
biases_size=12
biases_shape=[3]
"""
X, Y, Z = '  layer "x" (Input)', '  layer "y" (Pooling)', '  layer "z" (BiasAdd)'


def findings(text: str) -> list[str]:
    document, found = parse_ir(text)
    assert not found
    return [str(d) for d in validate(document)]


def test_sound() -> None:
    assert findings(TEXT) == []


CASES = {
    "layer_type=Pooling": (
        "layer_type=Poling",
        [
            'error[R130] layer type Poling is not known at line 18  layer "y" (Poling) '
            "(help: perhaps Pooling is meant)"
        ],
    ),
    "kernel_x=2": (
        "kernal_x=2",
        [
            (
                f"warning[R111] Pooling has no key kernal_x at line 25{Y} (help: perhaps "
                "kernel_x is meant)"
            ),
            f"error[R131] Pooling needs the key kernel_x at line 16{Y}",
        ],
    ),
    "kernel_y=2": (
        "kernel_y=2\nlayer_colour=1",
        [f"error[R111] Pooling has no key layer_colour at line 27{Y}"],
    ),
    "stride_x=2": (
        "stride_x=2.0",
        [f"error[R110] stride_x must be an integer, got '2.0' at line 27{Y}"],
    ),
    "ceil_mode=false": (
        "ceil_mode=maybe",
        [f"error[R110] ceil_mode must be true or false, got 'maybe' at line 36{Y}"],
    ),
    "method=AVG": (
        "method=AVERAGE",
        [f"error[R110] method must be one of AVG, MAX, L1, L2, got AVERAGE at line 35{Y}"],
    ),
    "biases_size=12": (
        "biases_size=13",
        [f"error[R103] constant biases: float32 [3] needs 12 bytes, but size is 13 at line 50{Z}"],
    ),
    "biases_shape=[3]\n": (
        "",
        [
            f"error[R131] BiasAdd needs the constant biases; biases_shape missing at line 49{Z}",
        ],
    ),
    "biases_type=float32\n": (
        "biases_type=float32\nbias_type=int8\nbias_offset=20\nbias_size=3\nbias_shape=[3]\n",
        [
            f"warning[R111] BiasAdd has no key bias_offset at line 50{Z} (help: perhaps "
            "biases_offset is meant)"
        ],
    ),
    "layer_number=3": (
        "layer_number=4",
        ["warning[R105] layer_number is 4, but there are 3 layers at line 2"],
    ),
    "output_tensors=[z_0]": (
        "output_tensors=[zz_0]",
        [
            "error[R105] output_tensors names zz_0, which no layer writes at line 4 (help: "
            "perhaps z_0 is meant)"
        ],
    ),
    "layer_bottom=[y_0]": (
        "layer_bottom=[yy_0]",
        [
            (
                f"error[R105] yy_0 is read, but no layer writes it at line 42{Z} (help: "
                "perhaps y_0 is meant)"
            )
        ],
    ),
    "layer_bottom_shape=[[1,2,2,3]]": (
        "layer_bottom_shape=[[1,2,2,4]]",
        [
            (
                "error[R105] y_0 is read with shape [1, 2, 2, 4] but written with [1, 2, "
                f'2, 3] by "y" at line 43{Z}'
            )
        ],
    ),
    "layer_bottom_type=[float32]\nlayer_top=[y_0]": (
        "layer_bottom_type=[int8]\nlayer_top=[y_0]",
        [f'error[R105] x_0 is read with type int8 but written with float32 by "x" at line 21{Y}'],
    ),
    "layer_top=[z_0]": (
        "layer_top=[y_0]",
        ["error[R105] output_tensors names z_0, which no layer writes at line 4"],
    ),
    "layer_name=z": (
        "layer_name=y",
        [
            (
                "warning[R105] layer_name y occurs twice, first in line 17 at line 40  "
                'layer "y" (BiasAdd)'
            )
        ],
    ),
    "layer_id=2": (
        "layer_id=0",
        [f"warning[R105] layer_id 0 occurs twice, first in line 6 at line 39{Z}"],
    ),
    "layer_bottom=[x_0]": ("layer_bottom=[x_0,x_0]", []),
    "layer_top_shape=[[1,4,4,3]]": (
        "layer_top_shape=[[-1,4,4,3]]",
        [f"error[R105] the shape [-1, 4, 4, 3] of x_0 has a negative dimension at line 13{X}"],
    ),
}
# these have consequences elsewhere in the document, which are findings as well
MORE = {
    "layer_top=[z_0]": [f'error[R105] tensor y_0 is written twice, first by "y" at line 45{Z}'],
    "layer_bottom=[x_0]": [
        f"warning[R105] Pooling has 1 inputs, but layer_bottom has 2 at line 19{Y}"
    ],
    "layer_top_shape=[[1,4,4,3]]": [
        (
            "error[R105] x_0 is read with shape [1, 4, 4, 3] but written with [-1, 4, 4, "
            f'3] by "x" at line 20{Y}'
        )
    ],
}


@pytest.mark.parametrize("old", CASES)
def test_findings(old: str) -> None:
    new, expected = CASES[old]
    text = TEXT.replace(old, new, 1)
    if old == "layer_bottom=[x_0]":
        text = text.replace(
            "layer_bottom_shape=[[1,4,4,3]]", "layer_bottom_shape=[[1,4,4,3],[1,4,4,3]]"
        ).replace("layer_bottom_type=[float32]", "layer_bottom_type=[float32,float32]", 1)
    assert sorted(findings(text)) == sorted(expected + MORE.get(old, []))


def test_circle() -> None:
    text = TEXT.replace("layer_bottom=[x_0]", "layer_bottom=[z_0]").replace(
        "[[1,4,4,3]]", "[[1,2,2,3]]"
    )
    assert findings(text) == [f'error[R105] layers form a cycle: "y", "z" at line 19{Y}']


def test_any_order_is_sound() -> None:
    header, *layers = TEXT.rstrip("\n").split("\n\n")
    assert findings("\n\n".join([header, *reversed(layers)])) == []


def test_bodies_see_the_tensors_of_the_main_graph() -> None:
    body = TEXT.split("\n\n")[3].replace("z_0", "b_0").replace("offset=0", "offset=12")
    text = (
        TEXT
        + "\nsubgraph_name=body\nlayer_number=1\ninput_tensors=[]\noutput_tensors=[b_0]\n\n"
        + body
    )
    assert findings(text) == []
    assert findings(text.replace("offset=12", "offset=8")) == [
        f'error[R103] constant biases (8..20) overlaps biases of "z" (0..12) at line 68{Z}'
    ]


def test_too_few_inputs() -> None:
    text = TEXT.replace("Pooling", "MatMul").replace("kernel_x=2", "trans_a=false\ntrans_b=false")
    assert (
        'error[R131] MatMul needs 2 inputs, but layer_bottom has 1 at line 19  layer "y" (MatMul)'
        in findings(text)
    )


def test_other_spellings_of_the_document_are_known() -> None:
    assert {find_operator(a) for a in ("Elwise", "Bitshift", "GRUV3", "GetValidCounts")} == {
        operators()[n] for n in ("Eltwise", "BitShift", "GRUv3", "GetValidCount")
    }
    text = TEXT.replace("Pooling", "MatMul").replace("kernel_x=2", "adj_x=false\ntans_b=false")
    assert not [f for f in findings(text) if "trans" in f or "adj" in f]


def test_integer_files_need_no_float_keys() -> None:
    text = (
        TEXT.split("\n\n")[0]
        + "\n\n"
        + TEXT.split("\n\n")[1]
        + "\n\n"
        + TEXT.split("\n\n")[2].split("\nkernel_x")[0].replace("Pooling", "Activation")
        + "\nmethod=SELU\n"
    )
    text = text.replace("layer_number=3", "layer_number=2").replace("[z_0]", "[y_0]")
    needs = [
        'error[R131] Activation needs the key alpha at line 16  layer "y" (Activation)',
        'error[R131] Activation needs the key gamma at line 16  layer "y" (Activation)',
    ]
    assert findings(text) == needs
    assert findings(text.replace("float32", "int8")) == []


def test_table() -> None:
    assert sum(o.documented for o in operators().values()) == 121
    assert not set(type_aliases()) & set(operators())
    for operator in operators().values():
        assert operator.doc.endswith(".") and operator.theme
        for part in (operator, *operator.methods.values(), common()):
            check_part(part)
        if operator.methods:
            assert list(operator.attributes["method"].values) == list(operator.methods)


def check_part(part: Operator) -> None:
    names = [*part.attributes, *(a for x in part.attributes.values() for a in x.aliases)]
    assert len(names) == len(set(names)), part.name
    for a in part.attributes.values():
        assert set(a.type.split("|")) <= set(_TYPES) and a.part in ("both", "float", "int"), (
            part.name,
            a.name,
        )
        assert (
            a.default is None
            or any(_TYPES[t](a.default) for t in a.type.split("|"))
            or a.type == "ints"
        ), (part.name, a.name)
        assert not a.values or a.default is None or a.default in a.values, (part.name, a.name)
        assert not set(a.value_aliases) & set(a.values) and set(a.value_aliases.values()) <= set(
            a.values
        ), (part.name, a.name)
