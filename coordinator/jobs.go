package coordinator

import "sync"

// jobs runs keyed work beside the loop that owns it: at most slots at once, and
// never two of one key. Whoever owns it receives from done, calls finished, and
// calls wait before it ends. All methods are of that one goroutine.
type jobs[K comparable] struct {
	slots int
	// busy are the keys at work; failed those that failed and rest until again
	// is called.
	busy   map[K]bool
	failed map[K]bool
	// done has room for every job, so that none waits for the owner.
	done chan job[K]
	wg   sync.WaitGroup
	// spawn runs work beside the caller; nil is a goroutine, joined by wait.
	spawn func(work func())
}

type job[K comparable] struct {
	key K
	err error
}

func newJobs[K comparable](slots int) *jobs[K] {
	return &jobs[K]{slots: slots, busy: make(map[K]bool), failed: make(map[K]bool), done: make(chan job[K], slots)}
}

// start runs work for the key, unless it is at work already, has failed, or no
// slot is free; then the owner asks again later. It reports whether it began.
func (j *jobs[K]) start(key K, work func() error) bool {
	if j.busy[key] || j.failed[key] || len(j.busy) >= j.slots {
		return false
	}
	j.busy[key] = true
	spawn := j.spawn
	if spawn == nil {
		spawn = j.wg.Go
	}
	spawn(func() { j.done <- job[K]{key, work()} })
	return true
}

// finished frees the slot of a job that came out of done.
func (j *jobs[K]) finished(d job[K]) {
	delete(j.busy, d.key)
	if d.err != nil {
		j.failed[d.key] = true
	}
}

// again lets failed keys be started once more.
func (j *jobs[K]) again() { clear(j.failed) }

// wait joins all work.
func (j *jobs[K]) wait() { j.wg.Wait() }
