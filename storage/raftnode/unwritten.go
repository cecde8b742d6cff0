package raftnode

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// unwritten is what a node could not write in its folder and goes on without, by
// what it is. On a full disk the log itself still has the room that was allocated
// for it, up to segmentSize, and only what is beside it fails. The zero value is
// nothing.
type unwritten struct {
	mu  sync.Mutex // guards why
	why map[string]error
}

// note takes what came of writing something, and reports whether it is news.
func (u *unwritten) note(what string, err error) (news bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	before := u.why[what]
	if err == nil {
		delete(u.why, what)
		return before != nil
	}
	if u.why == nil {
		u.why = map[string]error{}
	}
	u.why[what] = err
	return before == nil
}

// trouble says what a person has to do about it; empty for nothing.
func (u *unwritten) trouble(dir string) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.why) == 0 {
		return ""
	}
	var texts []string
	for what, err := range u.why {
		texts = append(texts, fmt.Sprintf("%s: %v", what, err))
	}
	slices.Sort(texts)
	return fmt.Sprintf("%s cannot be written: free disk space there; it ends once its log needs more room, with nothing lost (%s)", dir, strings.Join(texts, "; "))
}
