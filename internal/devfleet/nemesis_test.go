package devfleet

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/oomfleet/oomfleet/proto"
)

// faultKind is what is done to a process.
type faultKind string

const (
	faultKill  faultKind = "kill -9"
	faultPause faultKind = "pause"     // SIGSTOP, agents past their lease
	faultCut   faultKind = "partition" // from everybody else
)

// fault is one fault that was injected.
type fault struct {
	kind   faultKind
	target string
	at     time.Time
	lasted time.Duration // 0 for a kill
	// recovered is from its beginning to the first sign that all is well, see
	// recoveries; 0 when the sweep was over before.
	recovered time.Duration
}

func (f fault) role() string {
	role, _, _ := strings.Cut(f.target, "-")
	return role
}

// nemesis injects faults. The seed decides which; time decides what they meet.
type nemesis struct {
	world  *world
	net    *network
	random *rand.Rand
	names  []string
	began  time.Time
	faults []fault
}

func newNemesis(w *world, net *network, random *rand.Rand) *nemesis {
	return &nemesis{world: w, net: net, random: random, names: slices.Sorted(maps.Keys(w.procs)), began: time.Now()}
}

// strike injects one fault, or two at once, and waits until they are over; then
// it waits up to between, or until the sweep has settled.
func (n *nemesis) strike(watch *watch, between time.Duration) {
	var over sync.WaitGroup
	count := 1 + n.random.IntN(3)/2 // one in three strikes twice
	targets := map[string]bool{}
	for range count {
		f := n.draw()
		if targets[f.target] {
			continue
		}
		targets[f.target] = true
		f.at = time.Now()
		n.faults = append(n.faults, f)
		over.Go(func() { n.inject(f, watch.done) })
	}
	over.Wait()
	watch.pause(time.Duration(n.random.Int64N(int64(between))))
}

// draw chooses a fault. Roles are equally likely, not processes: there are many
// agents and one queue.
func (n *nemesis) draw() fault {
	roles := []string{"agent", "agent", "coordinator", "coordinator", "queue", "s3"}
	role := roles[n.random.IntN(len(roles))]
	var names []string
	for _, name := range n.names {
		if strings.HasPrefix(name, role) {
			names = append(names, name)
		}
	}
	f := fault{target: names[n.random.IntN(len(names))], kind: []faultKind{faultKill, faultPause, faultCut}[n.random.IntN(3)]}
	lease := n.world.cfg.Lease
	switch {
	case f.kind == faultKill:
	case role == "agent": // past its lease
		f.lasted = lease + 200*time.Millisecond + time.Duration(n.random.Int64N(int64(lease)))
	default:
		f.lasted = 200*time.Millisecond + time.Duration(n.random.Int64N(int64(2*time.Second)))
	}
	return f
}

// inject does it, and undoes it once it has lasted or everything has settled.
func (n *nemesis) inject(f fault, settled <-chan struct{}) {
	switch f.kind {
	case faultKill:
		n.world.Signal(f.target, syscall.SIGKILL) //nolint:errcheck // it may be dead already
		return
	case faultPause:
		pid, err := n.world.Signal(f.target, syscall.SIGSTOP)
		if err == nil {
			defer syscall.Kill(pid, syscall.SIGCONT) //nolint:errcheck // it may have been killed meanwhile
		}
	case faultCut:
		n.net.cut(f.target)
		defer n.net.mend(f.target)
	}
	select {
	case <-time.After(f.lasted):
	case <-settled:
	}
}

// calm undoes what may be left.
func (n *nemesis) calm() {
	for _, name := range n.names {
		n.net.mend(name)
		n.world.Signal(name, syscall.SIGCONT) //nolint:errcheck // it may be starting
	}
}

// recoveries finds out when each fault was overcome: for an agent, when it has
// finished its next run; for a coordinator, when the next write that began after
// the fault was acknowledged; for a server, when it answers again and the next
// run after that has been finished.
func (n *nemesis) recoveries(watch *watch) {
	runs := map[string][]time.Time{}
	var all []time.Time
	for name, text := range n.world.logs() {
		if !strings.HasPrefix(name, "agent-") {
			continue
		}
		for line := range strings.Lines(text) {
			if at, ok := loggedAt(line, `msg="run finished"`); ok {
				runs[name] = append(runs[name], at)
				all = append(all, at)
			}
		}
	}
	slices.SortFunc(all, time.Time.Compare)
	for i, f := range n.faults {
		var signs []time.Time
		switch f.role() {
		case "agent":
			signs = runs[f.target]
		case "coordinator":
			signs = watch.acks("write", f.at)
		default:
			signs = all
		}
		from := f.at.Add(f.lasted)
		switch answers := watch.acks(f.role(), from); {
		case f.role() == "coordinator":
			from = f.at
		case f.role() != "agent" && len(answers) > 0:
			from = answers[0]
		}
		for _, at := range signs {
			if at.After(from) {
				n.faults[i].recovered = at.Sub(f.at)
				break
			}
		}
	}
}

// loggedAt is the time of a log line with these words.
func loggedAt(line, words string) (time.Time, bool) {
	if !strings.Contains(line, words) {
		return time.Time{}, false
	}
	_, rest, ok := strings.Cut(line, "time=")
	stamp, _, _ := strings.Cut(rest, " ")
	at, err := time.Parse(time.RFC3339Nano, stamp)
	return at, ok && err == nil
}

// list is every fault, in order.
func (n *nemesis) list() string {
	var out strings.Builder
	for _, f := range n.faults {
		fmt.Fprintf(&out, "  +%6.1f s  %-9s %-13s", f.at.Sub(n.began).Seconds(), f.kind, f.target)
		if f.lasted > 0 {
			fmt.Fprintf(&out, " for %.1f s", f.lasted.Seconds())
		}
		if f.recovered > 0 {
			fmt.Fprintf(&out, ", well after %.2f s", f.recovered.Seconds())
		}
		out.WriteByte('\n')
	}
	return out.String()
}

// table counts faults and recoveries by what was done to whom.
func (n *nemesis) table() string {
	type row struct {
		faults     int
		recoveries []time.Duration
		over       int
	}
	rows := map[string]*row{}
	for _, f := range n.faults {
		key := fmt.Sprintf("| %-9s | %-11s |", f.kind, f.role())
		if rows[key] == nil {
			rows[key] = &row{}
		}
		rows[key].faults++
		if f.recovered > 0 {
			rows[key].recoveries = append(rows[key].recoveries, f.recovered)
		} else {
			rows[key].over++
		}
	}
	var out strings.Builder
	out.WriteString("| fault     | of          | times | recovered | median s | longest s | sweep over first |\n|---|---|---|---|---|---|---|\n")
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		r := rows[key]
		slices.Sort(r.recoveries)
		median, longest := "-", "-"
		if len(r.recoveries) > 0 {
			median = fmt.Sprintf("%.2f", r.recoveries[len(r.recoveries)/2].Seconds())
			longest = fmt.Sprintf("%.2f", r.recoveries[len(r.recoveries)-1].Seconds())
		}
		fmt.Fprintf(&out, "%s %5d | %9d | %8s | %9s | %16d |\n", key, r.faults, len(r.recoveries), median, longest, r.over)
	}
	out.WriteString("Pauses and partitions count from their beginning, so their own length is in the time.\n")
	return out.String()
}

// watch follows a sweep, and asks queue and trace store for a sign of life and
// writes to the registry all the time.
type watch struct {
	done   chan struct{} // closed when the sweep has settled
	stop   func()
	mu     sync.Mutex // guards acked
	acked  map[string][]acked
	joined sync.WaitGroup
}

// acked is one question or write that was answered.
type acked struct{ began, ended time.Time }

func (w *world) watch(id proto.MatrixID) *watch {
	ctx, cancel := context.WithCancel(w.t.Context())
	v := &watch{done: make(chan struct{}), acked: map[string][]acked{}}
	v.stop = func() { cancel(); v.joined.Wait() }
	w.t.Cleanup(v.stop)
	v.joined.Go(func() {
		client := w.client()
		for pause(ctx, 150*time.Millisecond) {
			if r, err := client.Sweep(ctx, id); err == nil && r.State == "settled" {
				close(v.done)
				return
			}
		}
	})
	v.every(ctx, "write", w.writer().write)
	v.every(ctx, "queue", func(ctx context.Context) (acked, error) { return greets(ctx, hostPort(w.conf.Queue.URL), "") })
	v.every(ctx, "s3", func(ctx context.Context) (acked, error) {
		return greets(ctx, hostPort(w.conf.Traces.URL), "GET / HTTP/1.0\r\n\r\n")
	})
	return v
}

// every does something all the time and keeps when it succeeded.
func (v *watch) every(ctx context.Context, what string, do func(context.Context) (acked, error)) {
	v.joined.Go(func() {
		for pause(ctx, 100*time.Millisecond) {
			if a, err := do(ctx); err == nil {
				v.mu.Lock()
				v.acked[what] = append(v.acked[what], a)
				v.mu.Unlock()
			}
		}
	})
}

// greets says hello to a server, which must say anything.
func greets(ctx context.Context, address, hello string) (a acked, err error) {
	a.began = time.Now()
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return a, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if _, err = conn.Write([]byte(hello)); err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	a.ended = time.Now()
	return a, err
}

// acks are when those were answered that began after a time.
func (v *watch) acks(what string, after time.Time) []time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []time.Time
	for _, a := range v.acked[what] {
		if a.began.After(after) {
			out = append(out, a.ended)
		}
	}
	return out
}

func (v *watch) settled() bool {
	select {
	case <-v.done:
		return true
	default:
		return false
	}
}

// pause waits for a while, or until the sweep has settled.
func (v *watch) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-v.done:
	}
}

// pause waits for a while and is false when ctx ends.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
