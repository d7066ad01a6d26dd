"""Workflows: graphs of steps, and sagas, over the tasks that they are made of."""
