"""The process that an operator starts, and the processes that it keeps."""
