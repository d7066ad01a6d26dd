"""The leases that this process holds, and how they last."""
