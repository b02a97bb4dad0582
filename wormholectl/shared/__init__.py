"""What several nouns share: options, errors, the question before a change, one change of a flow, certificates."""
