"""The programs of the Makefile: prepare the checkout, run the tests, check the tree, build the distribution."""
