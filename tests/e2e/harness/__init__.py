"""What the end-to-end tests stand on: servers, brokers, waiting. See tests/README.md."""
