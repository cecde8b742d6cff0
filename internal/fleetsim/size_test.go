//go:build !race

package fleetsim

// histories is how many TestHistories plays unless it is told.
const histories = 2000
