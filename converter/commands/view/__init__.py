"""A page with the drawing of a whole model, or of two side by side.

drawing.py   a network as the data of a drawing      scopes.py    scopes that fold it
constants.py constants that layers compute           families.py  families of operators
weights.py   histograms of weights                   pairing.py   pairs of layers of two networks
page.py      the page (converter/commands/report/assets/view.js draws it)
"""
