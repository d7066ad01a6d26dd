"""Publishing: topics as code declares them, and the messages sent to them."""
