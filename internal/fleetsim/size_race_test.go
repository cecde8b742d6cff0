//go:build race

package fleetsim

// histories is how many TestHistories plays unless it is told: under the race
// detector each takes ten times as long, and they share nothing that could race.
const histories = 150
