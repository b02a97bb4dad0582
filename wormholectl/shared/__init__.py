"""Used by several nouns: options, errors, the question before a change, the change of a flow, and certificates."""
