package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/oomfleet/oomfleet/allocator"
	"github.com/oomfleet/oomfleet/proto"
	"github.com/oomfleet/oomfleet/storage/trace"
)

// edgeMargin is how near to the edge a device or process outcome is not told:
// the bytes outside the allocator move by some MiB from run to run.
const edgeMargin = 16 << 20

// recorded is a trace opened for replay under other settings.
type recorded struct {
	program  *allocator.Program
	recorded allocator.Settings
	wanted   allocator.Settings
	kind     proto.QuotaKind
	cap      int64
	overhead int64
	total    int64
	ceiling  int64  // quotas above are not mapped; 0 for none
	run      string // what was recorded, for people
	// stop is asked while the recording is replayed; true ends that.
	stop func() bool
}

// endsWith is a stop: whether the command was cancelled.
func endsWith(ctx context.Context) func() bool { return func() bool { return ctx.Err() != nil } }

// openReplay reads a trace file and checks the question against it.
func openReplay(path string, f replayFlags) (*recorded, error) {
	r := &recorded{}
	var err error
	if r.kind, err = proto.ParseQuotaKind(f.capKind); err != nil {
		return nil, wrongInput(err)
	}
	quota, err := positive("--cap", f.cap)
	if err != nil {
		return nil, err
	}
	r.cap = int64(quota)
	if _, err := settingsOf(f.env, allocator.Settings{}); err != nil { // before the file, which takes longer
		return nil, wrongInput(err)
	}
	if path == "-" {
		return nil, usagef("a trace is not read from stdin, as its file is read from both ends: name the file")
	}
	events, meta, err := trace.ReadFile(path)
	if digest := proto.Digest(path); errors.Is(err, fs.ErrNotExist) && trace.ValidDigest(digest) {
		return nil, usagef("there is no file of this name, but it can be the digest of a stored trace: fetch it with `fleetctl trace get %s -o FILE`, then name the file", digest)
	}
	if err != nil {
		return nil, wrongInput(err)
	}
	if meta.Truncated {
		return nil, usagef("%s: the start of the recording was lost, it cannot be replayed", path)
	}
	if r.recorded, err = allocator.ParseSettings(meta.Settings[allocator.EnvConf]); err != nil {
		return nil, wrongInput(fmt.Errorf("%s was recorded under settings that cannot be replayed: %w", path, err))
	}
	if r.wanted, err = settingsOf(f.env, r.recorded); err != nil {
		return nil, wrongInput(err)
	}
	if r.program, err = allocator.Compile(events); err != nil {
		return nil, wrongInput(fmt.Errorf("%s: %w", path, err))
	}
	r.total, r.run = int64(meta.DeviceTotal), runText(meta)
	if r.kind != proto.QuotaAllocator {
		outside, known := meta.OutsideAllocator()
		if !known {
			return nil, usagef("%s does not say what the process held outside the allocator: only --cap-kind allocator can be replayed", path)
		}
		r.overhead = int64(outside)
	}
	return r, nil
}

// runText is what a recording is of, as far as it says.
func runText(m trace.Meta) string {
	text := m.Cell.Workload.Name
	if m.Cell.SeqLen > 0 {
		text = strings.TrimSpace(text + " " + cellPlace(proto.CellReport{SeqLen: m.Cell.SeqLen, Batch: m.Cell.Batch, ChunkSize: m.Cell.ChunkSize}))
	}
	if m.Stack.GPU != "" {
		text += " on " + m.Stack.GPU
	}
	if m.Stack.Driver != "" {
		text += ", driver " + m.Stack.Driver
	}
	return text
}

// underText is the quota of one replay.
func (r *recorded) underText() string {
	if r.cap == 0 {
		return "no quota"
	}
	return fmt.Sprintf("%s quota %s", r.kind, mib(proto.Bytes(r.cap)))
}

// question is what is answered: under which kind of quota, of what run, with
// which settings. A boundary without its kind is meaningless.
func (r *recorded) question(what string, env []string) string {
	parts := []string{what}
	if r.run != "" {
		parts = append(parts, r.run)
	}
	if len(env) > 0 {
		parts = append(parts, "with "+strings.Join(env, " "))
	}
	return strings.Join(parts, ", ")
}

// settingsOf reads --env pairs; without any the recording's own settings hold.
func settingsOf(pairs []string, recorded allocator.Settings) (allocator.Settings, error) {
	if len(pairs) == 0 {
		return recorded, nil
	}
	env := map[string]string{}
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return allocator.Settings{}, fmt.Errorf("--env takes KEY=VALUE, not %q", pair)
		}
		if old, twice := env[name]; twice && old != value {
			return allocator.Settings{}, fmt.Errorf("--env names %s twice with different values", name)
		}
		env[name] = value
	}
	s, err := allocator.SettingsFromEnv(env)
	if err == nil && s.Fraction > 0 && s.Fraction < 1 {
		return s, errFraction
	}
	return s, err
}

// errFraction refuses a second quota beside the one that is asked about.
var errFraction = errors.New("per_process_memory_fraction is a quota of its own: leave it out, and give its bytes to `trace replay` as --cap")

// limit is the replay's limit for a quota of the kind that was asked for.
func (r *recorded) limit(quota int64) allocator.Limit {
	if quota == 0 {
		return allocator.Limit{}
	}
	if r.kind == proto.QuotaAllocator {
		return allocator.Limit{Cap: quota}
	}
	return allocator.Limit{Device: max(quota-r.overhead, 1)}
}

func (r *recorded) replay(quota int64) allocator.ReplayResult {
	return r.program.Replay(r.wanted, allocator.ReplayOptions{Limit: r.limit(quota), DeviceTotal: r.total, Stop: r.stop})
}

// checked refuses a recording that the model does not understand.
func (r *recorded) checked() (mismatches int, err error) {
	report, err := r.program.SelfCheckUntil(r.recorded, r.stop)
	if err != nil {
		return 0, err
	}
	if report.Mismatches > 0 {
		return report.Mismatches, usagef("the recording fails its self-check (%d mismatches): %s; nothing is predicted from it", report.Mismatches, report.First)
	}
	return 0, nil
}

func (r *recorded) document() (replayDocument, error) {
	mismatches, err := r.checked()
	if err != nil {
		return replayDocument{}, err
	}
	res := r.replay(r.cap)
	if res.Stopped {
		return replayDocument{}, allocator.ErrStopped
	}
	d := replayDocument{Outcome: outcomeOf(res), PeakRes: res.PeakReserved, PeakAlloc: res.PeakAllocated,
		Retries: res.Retries, OOMs: res.OOMs, SelfCheck: mismatches, TriedBytes: res.Tried}
	if r.kind != proto.QuotaAllocator && r.cap > 0 {
		d.MarginBytes = edgeMargin
		if r.nearEdge(d.Outcome) {
			d.Outcome = "undetermined"
		}
		if r.stop != nil && r.stop() { // what was stopped says nothing of the edge
			return replayDocument{}, allocator.ErrStopped
		}
	}
	return d, nil
}

// nearEdge is whether a quota within the margin has another outcome.
func (r *recorded) nearEdge(outcome string) bool {
	for delta := int64(-edgeMargin); delta <= edgeMargin; delta += 2 << 20 {
		if quota := r.cap + delta; quota > 0 && outcomeOf(r.replay(quota)) != outcome {
			return true
		}
	}
	return false
}

func outcomeOf(r allocator.ReplayResult) string {
	if r.OOM {
		return "oom"
	}
	return "ok"
}

// boundary maps the outcome over all quotas; it also returns the replay without
// one. checked comes first where there is a recording to check.
func (r *recorded) boundary(ctx context.Context) (boundaryDocument, allocator.ReplayResult, error) {
	o := allocator.SweepOptions{Settings: r.wanted, Recorded: r.recorded, Overhead: r.overhead, DeviceTotal: r.total, Ceiling: r.ceiling,
		Stop: func() bool { return ctx.Err() != nil }}
	if r.kind != proto.QuotaAllocator && r.kind != "" {
		o.Kind = allocator.SweepDevice
	}
	s, err := r.program.Sweep(o)
	if err == nil && s.AboveDevice && o.Ceiling > 0 { // the boundary lies higher than was looked
		o.Ceiling = 0
		s, err = r.program.Sweep(o)
	}
	if err == nil && s.AboveDevice { // and beyond the card
		o.DeviceTotal = 0
		s, err = r.program.Sweep(o)
	}
	if err != nil {
		return boundaryDocument{}, allocator.ReplayResult{}, err
	}
	d := boundaryDocument{Replays: s.Replays, Layout: s.LayoutSensitive, SelfCheck: s.SelfCheckMismatches, Boundary: proto.Boundary{
		Boundary: proto.Bytes(s.Boundary), LowestPass: proto.Bytes(s.LowestPass), NoRetry: proto.Bytes(s.NoRetry),
		FailBands: []proto.Band{}, BandsKnown: true}}
	for _, b := range s.FailBands {
		d.FailBands = append(d.FailBands, proto.Band{From: proto.Bytes(b.From), To: proto.Bytes(b.To)})
	}
	return d, s.Uncapped, nil
}

// fetchTrace downloads a trace to a temporary name beside out, checks it
// against its digest and renames it.
func (a *app) fetchTrace(ctx context.Context, digest proto.Digest, out string) (int64, error) {
	if !trace.ValidDigest(digest) {
		return 0, notADigest(digest)
	}
	client, err := a.client()
	if err != nil {
		return 0, err
	}
	content, err := client.Trace(ctx, digest)
	if err != nil {
		return 0, a.explain(err)
	}
	defer content.Close()
	f, err := os.CreateTemp(filepath.Dir(out), ".trace-*")
	if err != nil {
		return 0, fmt.Errorf("write %s: %w", out, err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	hash := sha256.New()
	size, err := io.Copy(io.MultiWriter(f, hash), content)
	if err != nil {
		return 0, fmt.Errorf("fetch trace %s: %w", digest, err)
	}
	if got := proto.Digest(hex.EncodeToString(hash.Sum(nil))); got != digest {
		return 0, fmt.Errorf("the content that came back has digest %s, not %s: the store is damaged or the download was cut", got, digest)
	}
	if err := errors.Join(f.Close(), os.Rename(f.Name(), out)); err != nil {
		return 0, fmt.Errorf("write %s: %w", out, err)
	}
	return size, nil
}
