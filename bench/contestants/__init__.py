"""Who takes part. Each has a backlog to fill and a relay to start; what they send is the same: key, three headers, 300 bytes of JSON."""
