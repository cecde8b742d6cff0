package devfleet

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"testing"
)

// underRace reports whether this test binary has the race detector. Then the
// program that it builds has it too: what races between goroutines of a
// coordinator is found there, not here.
func underRace() bool {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return false
	}
	for _, s := range info.Settings {
		if s.Key == "-race" {
			return s.Value == "true"
		}
	}
	return false
}

// races are the race reports of the processes that tests have started. Each
// process writes its own file, however it dies, and whoever reads its stderr.
var races struct {
	mu   sync.Mutex // guards told
	told map[string]bool
}

// raceFiles is where they are: the detector adds a dot and the process's id.
func raceFiles() string { return filepath.Join(built, "race") }

// newRaces returns the reports that were not returned before.
func newRaces() (reports []string) {
	races.mu.Lock()
	defer races.mu.Unlock()
	paths, err := filepath.Glob(raceFiles() + ".*")
	if err != nil {
		panic(err) // the pattern is ours
	}
	for _, path := range paths {
		if text, err := os.ReadFile(path); err == nil && !races.told[path] {
			if races.told == nil {
				races.told = map[string]bool{}
			}
			races.told[path] = true
			reports = append(reports, string(text))
		}
	}
	return reports
}

// noRaces fails a test in whose processes the detector has found something.
func noRaces(t *testing.T) {
	t.Helper()
	for _, report := range newRaces() {
		t.Errorf("a process has a data race:\n%s", report)
	}
}
