"""Your own tables: from a csv file to a fitted estimator, a folder to keep it and a card.

``reading`` gives text in columns, ``columns`` makes numbers of it, ``target`` finds what is to be
predicted, ``fit`` splits and trains, ``scores`` compares, ``folder`` keeps, ``card`` shows.
"""
