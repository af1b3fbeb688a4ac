"""A page with the drawing of a whole model, or of two side by side.

drawing.py   a network as the data of a drawing      scopes.py    how it is folded
weights.py   histograms of weights                   pairing.py   two networks: which layer is which
page.py      the page (converter/commands/report/assets/view.js draws it)
"""
