"""Sources that are asked over the network: pages of metrics, and tracking servers."""
