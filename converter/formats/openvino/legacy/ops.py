"""The rows: canonical operators <-> legacy layers of the same meaning, with all their attributes."""

from __future__ import annotations

from converter.mapping.codecs import number
from converter.mapping.fields import Attr, Fixed
from converter.mapping.table import Table, op, ops

TABLE = Table(
    [
        *ops("Abs Acos Asin Atan Ceil Cos Cosh Erf Floor Log Neg Reciprocal Sign Sin Sinh Softplus Softsign Tan Acosh Asinh Atanh"),
        op("Sigmoid", "Activation", Fixed("type", "sigmoid"), given="1,4"),
        op("Tanh", "Activation", Fixed("type", "tanh"), given="1,4"),
        op("Exp", "Activation", Fixed("type", "exp"), given="1,4"),
        *ops("Sigmoid Sigmoid=Logistic Tanh=TanH Exp Sqrt Softplus=SoftPlus Softsign=SoftSign Identity", lift_only=True),
        op(
            "Selu",
            "Selu",
            Attr("alpha", "alpha", number, far_default=1.6732631921768188),
            Attr("gamma", "gamma", number, far_default=1.0507010221481323),
        ),
        op("HardSigmoid", "HardSigmoid", Attr("alpha", "alpha", number, far_default=0.2), Attr("beta", "beta", number, far_default=0.5)),
    ]
)
