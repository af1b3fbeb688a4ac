"""Apple's files: three dialects, each a format with a value `FORMAT`, and their common code.

package.py      folders that are one model: .mlpackage and .aimodel
package_zip.py  a package in a .zip
kind.py         the kind of model that a Core ML file holds, detected without decoding it
proto.py        the protobuf messages of Core ML files
about.py        the version, author and license that a file states
description.py  declarations of inputs and outputs, written
features.py     declarations of inputs and outputs, read
fields.py       fields of rows that several dialects share
classifier.py   classifiers <-> operators
suppression.py  a model of non-maximum suppression in a pipeline -> operators
bits.py         numbers of 1 to 8 bits
compressed.py   weights that are stored as codes, tables and masks
neuralnetwork/  neural networks, in an .mlmodel or an .mlpackage
mlprogram/      ML Programs, in an .mlpackage
coreai/         Core AI models, in an .aimodel
"""
