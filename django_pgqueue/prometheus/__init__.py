"""Prometheus: numbers of a worker and of the whole queue, as Prometheus reads them."""
