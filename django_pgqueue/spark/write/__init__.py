"""
Writing: rows of a DataFrame become jobs or messages, all of them or none.

writer.py is what Spark calls: it checks the options and the columns, makes texts of
rows.py, and lets them wait in a stage, which staged.py moves once journal.py says so.
"""
