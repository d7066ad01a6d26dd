"""
Writing: rows of a DataFrame become jobs or messages, all of them or none.

writer.py is what Spark calls: it checks the options and the columns (parts.py), turns
rows into text (rows.py, texts.py), and stores that in a stage. staged.py moves the rows
of the stage once journal.py has decided.
"""
