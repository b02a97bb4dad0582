"""What the Makefile calls: prepare the checkout, run the suite, check the tree, build the distribution."""
