"""The gRPC service that publishers dial, and each of their streams joined to the flows that it feeds."""
