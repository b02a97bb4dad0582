"""The conformance kit of the push protocol: see docs/conformance.md."""
