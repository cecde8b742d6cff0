// Package lint owns the house rules as tests: layers, who may import which
// module, sizes, documentation, and what product code never does. It holds no
// product code and refuses taste; a rule that a machine cannot decide belongs
// in a review.
//
// A finding that has to stay is a line with its reason in exceptions_test.go,
// and a line that no longer excuses anything fails as well. Start reading at
// tree_test.go (what is read), then the rule that failed.
package lint
