package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/oomfleet/oomfleet/coordinator"
	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/queue/memq"
	"github.com/oomfleet/oomfleet/storage/raftnode"
	"github.com/oomfleet/oomfleet/storage/registry"
	"github.com/oomfleet/oomfleet/storage/trace"
	"github.com/oomfleet/oomfleet/storage/trace/dir"
)

// linearSeed takes back the seed that a failed run printed.
var linearSeed = flag.Uint64("linear.seed", 0, "seed of TestLinearizable; 0 draws one")

// The register that clients write and read: one group of imported coefficients,
// whose value is a term.
type registerInput struct {
	write bool
	value int // written
}

// register is what a linearizable registry does with one group.
func register() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return 0 },
		Step: func(state, input, output any) (bool, any) {
			in := input.(registerInput)
			if in.write {
				return true, in.value
			}
			return output.(int) == state.(int), state
		},
		DescribeOperation: func(input, output any) string {
			if in := input.(registerInput); in.write {
				return fmt.Sprintf("write %d", in.value)
			}
			return fmt.Sprintf("read %v", output)
		},
	}
}

// trio is three real raft nodes, each with the real API in front of it. Every
// raft connection goes through a link that can be cut; clients reach all of them
// all the time, also one that is cut off and still believes that it leads.
type trio struct {
	*testing.T
	queue  *memq.Queue
	traces *trace.Store
	ids    []string
	dirs   map[string]string
	raft   map[string]string // real addresses
	links  map[[2]string]*link
	apis   map[string]*httptest.Server
	beat   time.Duration // raft's heartbeat

	mu    sync.Mutex // guards nodes
	nodes map[string]*raftnode.Node
}

// link is one direction between two nodes.
type link struct {
	listener net.Listener
	to       string
	wg       sync.WaitGroup

	mu    sync.Mutex // guards all below
	down  bool
	conns map[net.Conn]bool
}

func newLink(t *testing.T, to string) *link {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &link{listener: l, to: to, conns: map[net.Conn]bool{}}
	k.wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			k.wg.Go(func() { k.carry(in) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		k.cut(true)
		k.wg.Wait()
	})
	return k
}

func (k *link) carry(in net.Conn) {
	defer in.Close()
	out, err := net.Dial("tcp", k.to)
	if err != nil {
		return
	}
	defer out.Close()
	k.mu.Lock()
	if k.down {
		k.mu.Unlock()
		return
	}
	k.conns[in], k.conns[out] = true, true
	k.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { io.Copy(out, in); out.Close(); in.Close() })
	both.Go(func() { io.Copy(in, out); out.Close(); in.Close() })
	both.Wait()
	k.mu.Lock()
	delete(k.conns, in)
	delete(k.conns, out)
	k.mu.Unlock()
}

func (k *link) cut(down bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.down = down
	for c := range k.conns {
		if down {
			c.Close()
		}
	}
}

func newTrio(t *testing.T, beat time.Duration) *trio {
	t.Helper()
	q, err := memq.New(memq.Config{})
	if err != nil {
		t.Fatal(err)
	}
	driver, err := dir.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := &trio{T: t, queue: q, traces: trace.NewStore(driver), ids: []string{"a", "b", "c"}, dirs: map[string]string{}, raft: map[string]string{},
		links: map[[2]string]*link{}, apis: map[string]*httptest.Server{}, beat: beat, nodes: map[string]*raftnode.Node{}}
	listeners := map[string]net.Listener{}
	for _, id := range c.ids {
		if listeners[id], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		c.raft[id], c.dirs[id] = listeners[id].Addr().String(), t.TempDir()
	}
	for _, from := range c.ids {
		for _, to := range c.ids {
			if from != to {
				c.links[[2]string{from, to}] = newLink(t, c.raft[to])
			}
		}
	}
	for _, id := range c.ids {
		c.open(id, listeners[id])
	}
	for _, id := range c.ids {
		c.serve(id)
	}
	t.Cleanup(func() {
		for _, id := range c.ids {
			c.partition(id, true)
			if n := c.node(id); n != nil {
				n.Close()
			}
		}
	})
	c.lead(t)
	return c
}

func (c *trio) node(id string) *raftnode.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[id]
}

// open starts a node on its data folder.
func (c *trio) open(id string, l net.Listener) {
	cfg := raftnode.Config{ID: id, DataDir: c.dirs[id], Listener: l, RaftAddr: c.raft[id], Heartbeat: c.beat}
	for _, other := range c.ids {
		address := c.raft[other]
		if other != id {
			address = c.links[[2]string{id, other}].listener.Addr().String()
		}
		cfg.Servers = append(cfg.Servers, raftnode.Server{ID: other, RaftAddr: address})
	}
	n, err := raftnode.Open(cfg)
	if err != nil {
		c.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[id] = n
}

// kill ends a node as a crash would for the others: nothing is handed over.
func (c *trio) kill(id string) {
	c.partition(id, true)
	c.node(id).Close()
}

// partition cuts a node off from the others, or lets it back in.
func (c *trio) partition(id string, down bool) {
	for _, other := range c.ids {
		if other != id {
			c.links[[2]string{id, other}].cut(down)
			c.links[[2]string{other, id}].cut(down)
		}
	}
}

// current is the node of an id, whichever life it is in.
type current struct {
	c  *trio
	id string
}

func (n current) View() registry.View                  { return n.c.node(n.id).View() }
func (n current) LeaderID() string                     { return n.c.node(n.id).LeaderID() }
func (n current) Changed(after uint64) <-chan struct{} { return n.c.node(n.id).Changed(after) }
func (n current) Standing() (time.Duration, bool)      { return n.c.node(n.id).Standing() }
func (n current) Consistent(ctx context.Context) error { return n.c.node(n.id).Consistent(ctx) }
func (n current) Leadership() (bool, <-chan struct{})  { return n.c.node(n.id).Leading() }
func (n current) Propose(ctx context.Context, cmd registry.Command) (registry.Reply, error) {
	return n.c.node(n.id).Propose(ctx, cmd)
}
func (n current) Restore(ctx context.Context, from io.Reader, force bool) (registry.Restored, error) {
	return n.c.node(n.id).Restore(ctx, from, force)
}

func (c *trio) serve(id string) {
	node := current{c, id}
	service, err := coordinator.New(coordinator.Config{}, coordinator.Deps{Registry: node, Queue: c.queue, Traces: c.traces})
	if err != nil {
		c.Fatal(err)
	}
	handler, err := api.New(api.Deps{ID: id, Sweeps: service, Imports: service, Registry: node, Traces: c.traces, Agents: c.queue})
	if err != nil {
		c.Fatal(err)
	}
	c.apis[id] = httptest.NewServer(handler)
	c.Cleanup(c.apis[id].Close)
}

// lead waits for a leader that all may write to, and makes the members known.
func (c *trio) lead(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for ctx.Err() == nil {
		for _, id := range c.ids {
			n := c.node(id)
			if n.Consistent(ctx) != nil {
				continue
			}
			ok := true
			for _, member := range c.ids {
				cmd := registry.Command{SetMember: &registry.SetMember{Member: registry.Member{ID: member, API: c.apis[member].URL}}}
				_, err := n.Propose(ctx, cmd)
				ok = ok && err == nil
			}
			if ok {
				return id
			}
		}
	}
	t.Fatalf("no leader within %s", patience)
	return ""
}

// imported is the group of these tests with a value.
func imported(value int) proto.Coefficients {
	term := proto.Term{Name: "weights", Value: float64(value), Unit: "bytes", Lo: float64(value), Hi: float64(value)}
	model := fmt.Sprintf(`{"target":"allocated","terms":[{"name":"weights","value":%d,"unit":"bytes","lo":%d,"hi":%d}],"domain":{"seq_len":[1,100],"batch":[1,1]}}`, value, value, value)
	return proto.Coefficients{Group: proto.Group{Workload: proto.Workload{Name: "register"}, Env: map[string]string{}}, QuotaKind: proto.QuotaAllocator,
		Origin: proto.OriginImported, Target: "allocated", Terms: []proto.Term{term}, Points: 2, Model: json.RawMessage(model),
		Domain: proto.Domain{SeqLen: proto.Range{1, 100}, Batch: proto.Range{1, 1}}}
}

func (c *trio) client(ids ...string) *api.Client {
	var urls []string
	for _, id := range ids {
		urls = append(urls, c.apis[id].URL)
	}
	client, err := api.NewClient(strings.Join(urls, ","))
	if err != nil {
		c.Fatal(err)
	}
	return client
}

// valueOf reads the register.
func valueOf(ctx context.Context, client *api.Client, consistent bool) (int, error) {
	query := url.Values{"workload": {"register"}}
	if consistent {
		query.Set("consistent", "true")
	}
	list, err := client.Coefficients(ctx, query)
	switch {
	case err != nil:
		return 0, err
	case len(list.Coefficients) == 0:
		return 0, nil
	}
	return int(list.Coefficients[0].Terms[0].Value), nil
}

// recorder is a history as its clients saw it.
type recorder struct {
	begin time.Time
	mu    sync.Mutex // guards ops
	ops   []porcupine.Operation
}

func (r *recorder) now() int64 { return time.Since(r.begin).Nanoseconds() }

func (r *recorder) add(op porcupine.Operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, op)
}

// pending is the return of a write of which nobody knows whether it happened.
const pending = 1 << 62

// write imports a value. One that the coordinators did not take has not
// happened; any other that failed may have, at any time from then on.
func (r *recorder) write(ctx context.Context, client *api.Client, who, value int) bool {
	op := porcupine.Operation{ClientId: who, Input: registerInput{write: true, value: value}, Call: r.now()}
	_, err := client.Import(ctx, []proto.Coefficients{imported(value)})
	var p *api.Problem
	if errors.As(err, &p) && p.Code == api.CodeRefused {
		panic("an import was refused: " + p.Message)
	}
	if errors.As(err, &p) && p.Code == api.CodeNoLeader {
		return false
	}
	if op.Return = r.now(); err != nil {
		op.Return = pending
	}
	r.add(op)
	return err == nil
}

func (r *recorder) read(ctx context.Context, client *api.Client, who int, consistent bool) bool {
	op := porcupine.Operation{ClientId: who, Input: registerInput{}, Call: r.now()}
	value, err := valueOf(ctx, client, consistent)
	if err != nil {
		return false // nothing was learnt, and nothing was done
	}
	op.Output, op.Return = value, r.now()
	r.add(op)
	return true
}

// TestLinearizable: clients write and read one group of coefficients through the
// API of three coordinators while their leader is killed and cut off again and
// again. All that they saw has an order in which each operation happened at one
// moment between its call and its return.
func TestLinearizable(t *testing.T) {
	seed := *linearSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed: -linear.seed=%d", seed)
	c := newTrio(t, 150*time.Millisecond)
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	r := &recorder{begin: time.Now()}
	var wg sync.WaitGroup
	var values, wrote, read atomic.Int64
	for who := range 5 {
		random := rand.New(rand.NewPCG(seed, uint64(who)))
		client := c.client(c.ids[who%3]) // each asks one coordinator, so that all are asked
		wg.Go(func() {
			for ctx.Err() == nil {
				call, cancel := context.WithTimeout(ctx, time.Second)
				if random.IntN(3) == 0 {
					if r.write(call, client, who, int(values.Add(1))) {
						wrote.Add(1)
					}
				} else if r.read(call, client, who, true) {
					read.Add(1)
				}
				cancel()
				breathe(ctx, time.Duration(5+random.IntN(30))*time.Millisecond)
			}
		})
	}
	faults := c.disturb(ctx, rand.New(rand.NewPCG(seed, 99)), func(faults int) bool {
		return time.Since(r.begin) > 12*time.Second && wrote.Load() >= 20 && read.Load() >= 50 && faults >= 3
	})
	stop()
	wg.Wait()
	c.check(r, porcupine.Ok)
	t.Logf("%d writes and %d reads were answered, %d faults, leader last %s", wrote.Load(), read.Load(), faults, c.lead(t))
	if wrote.Load() < 20 || read.Load() < 50 || faults < 3 {
		t.Errorf("too little happened for this to mean anything")
	}
}

// breathe waits for d or for ctx.
func breathe(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// disturb kills leaders and cuts them off until it is enough or ctx ends, and
// mends everything.
func (c *trio) disturb(ctx context.Context, random *rand.Rand, enough func(faults int) bool) (faults int) {
	for ctx.Err() == nil && !enough(faults) {
		breathe(ctx, time.Duration(200+random.IntN(500))*time.Millisecond)
		at := slices.IndexFunc(c.ids, func(id string) bool { return c.node(id).IsLeader() })
		if at < 0 || ctx.Err() != nil {
			continue
		}
		id := c.ids[at]
		faults++
		if random.IntN(2) == 0 {
			c.partition(id, true)
			breathe(ctx, time.Duration(100+random.IntN(900))*time.Millisecond)
		} else {
			c.kill(id)
			breathe(ctx, time.Duration(random.IntN(400))*time.Millisecond)
			c.open(id, nil)
		}
		c.partition(id, false)
	}
	return faults
}

// history is what was recorded, in a form that is checked in little time. Values
// are written once, so a pending write that nobody read may be left out (without
// it the rest is as before), and one that was read happened before the first
// such read returned.
func (r *recorder) history() []porcupine.Operation {
	seen := map[int]int64{}
	for _, op := range r.ops {
		if value, ok := op.Output.(int); ok {
			if first, known := seen[value]; !known || op.Return < first {
				seen[value] = op.Return
			}
		}
	}
	var out []porcupine.Operation
	for i, op := range r.ops {
		if op.Return == pending {
			first, read := seen[op.Input.(registerInput).value]
			if !read {
				continue
			}
			op.Return = first
			op.ClientId = 1000 + i // its client went on meanwhile
		}
		out = append(out, op)
	}
	return out
}

// check holds a history to the model.
func (c *trio) check(r *recorder, want porcupine.CheckResult) {
	c.Helper()
	history := r.history()
	got := porcupine.CheckOperationsTimeout(register(), history, patience)
	c.Logf("%d operations, %d of them checked: %s", len(r.ops), len(history), got)
	if got != want {
		c.Errorf("the history is %s, want %s", got, want)
	}
}

// TestStaleReadsAreCaught holds the checker to what it is for: the same clients
// and the same model, but a read from a replica that is cut off, not consistent.
// The history must fail. With consistent=true the same question is answered
// rightly or not at all, and with max_age it is refused.
func TestStaleReadsAreCaught(t *testing.T) {
	c := newTrio(t, time.Second) // a leader that is late is not the subject
	ctx := t.Context()
	leader := c.lead(t)
	others := slices.DeleteFunc(slices.Clone(c.ids), func(id string) bool { return id == leader })
	old, writer := c.client(others[0]), c.client(leader)
	r := &recorder{begin: time.Now()}
	write := func(value int) { // again, where a leader was lost for a moment
		for before := len(r.ops); !r.write(ctx, writer, 0, value); r.ops = r.ops[:before] {
			if time.Since(r.begin) > patience {
				t.Fatal("not written")
			}
		}
	}
	write(1)
	for { // the replica has it
		if value, err := valueOf(ctx, old, false); err == nil && value == 1 {
			break
		}
		<-c.node(others[0]).Changed(c.node(others[0]).View().AppliedIndex)
	}
	c.partition(others[0], true)
	write(2)
	before := slices.Clone(r.ops)
	if !r.read(ctx, old, 1, false) {
		t.Fatal("a replica that is cut off answers what it has")
	}
	c.check(r, porcupine.Illegal)
	if got := r.ops[len(r.ops)-1].Output; got != 1 {
		t.Errorf("it answered %v", got)
	}
	r.ops = before
	r.read(ctx, old, 1, true) // the API is reachable: through the leader, or refused
	c.check(r, porcupine.Ok)
	_, err := old.Coefficients(ctx, url.Values{"max_age": {"1ms"}})
	var p *api.Problem
	if !errors.As(err, &p) || p.Code != api.CodeTooOld || p.GetStatus() != http.StatusServiceUnavailable || !strings.Contains(p.Message, "behind") {
		t.Errorf("max_age: %v", err)
	}
}
