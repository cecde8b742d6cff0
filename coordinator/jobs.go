package coordinator

import "sync"

// jobs runs keyed work beside the loop that owns it: at most slots at once, and
// never two of one key. Whoever owns it receives from done, calls finished, and
// waits for ended before it ends. All methods are of that one goroutine.
type jobs[K comparable] struct {
	slots int
	// room is what each job takes of the room that all terms of leadership share,
	// while it lasts: one that cannot be interrupted may outlive its term. nil is
	// room for all.
	room chan struct{}
	// busy are the keys at work; failed those that failed, until they do not, and
	// afresh how many have since again was called.
	busy   map[K]bool
	failed map[K]*turns
	afresh int
	// done has room for every job, so that none waits for the owner.
	done chan job[K]
	wg   sync.WaitGroup
	// spawn runs work beside the caller; nil is a goroutine, see ended.
	spawn func(work func())
}

// turns are how often in a row something has failed, and for how many calls of
// again it rests: twice it is tried at the next, after that each time twice as
// late. What fails for want of room in the store may have read gigabytes before.
type turns struct{ failed, rests int }

// mostTurns is the most that something rests: a minute, at the usual interval.
const mostTurns = 12

func (t *turns) fail() {
	t.failed++
	t.rests = min(1<<min(max(0, t.failed-2), 4), mostTurns)
}

type job[K comparable] struct {
	key K
	err error
}

func newJobs[K comparable](slots int, room chan struct{}) *jobs[K] {
	return &jobs[K]{slots: slots, room: room, busy: make(map[K]bool), failed: make(map[K]*turns), done: make(chan job[K], slots)}
}

// start runs work for the key, unless it is at work already, has failed and rests, or no
// slot is free; then the owner asks again later. It reports whether it began.
func (j *jobs[K]) start(key K, work func() error) bool {
	if t := j.failed[key]; j.busy[key] || t != nil && t.rests > 0 || len(j.busy) >= j.slots {
		return false
	}
	j.busy[key] = true
	do := func() { j.done <- job[K]{key, work()} }
	if j.spawn != nil {
		j.spawn(do)
		return true
	}
	j.wg.Go(func() {
		if j.room != nil {
			j.room <- struct{}{}
			defer func() { <-j.room }()
		}
		do()
	})
	return true
}

// finished frees the slot of a job that came out of done.
func (j *jobs[K]) finished(d job[K]) {
	delete(j.busy, d.key)
	if d.err == nil {
		delete(j.failed, d.key)
		return
	}
	if j.failed[d.key] == nil {
		j.failed[d.key] = &turns{}
	}
	j.failed[d.key].fail()
	j.afresh++
}

// again lets failed keys be started once more, those that failed often not each time.
func (j *jobs[K]) again() {
	j.afresh = 0
	for _, t := range j.failed {
		t.rests--
	}
}

// ended is closed when all work has ended; no more may be started.
func (j *jobs[K]) ended() <-chan struct{} {
	ended := make(chan struct{})
	go func() { // ends with the work
		j.wg.Wait()
		close(ended)
	}()
	return ended
}
