"""The subcommands of pgqueue_pipeline, a file each, and what they share."""
