package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Event is one line from runner to agent: *Hello, *Started, *Phase, *Trace,
// *Done, *Failed, *Exited or *Fault. The set is closed.
type Event interface {
	kind() string
	// Run is the id of the run that the event belongs to, "" for none.
	Run() string
	check() error
	head() *header
}

// header carries the event's name on the wire; Encode fills it in.
type header struct {
	Ev string `json:"ev"`
}

func (h *header) head() *header { return h }

// RunID is the part that every event of a run has: the id in its request.
type RunID struct {
	ID string `json:"id"`
}

// Run returns the run's id.
func (r RunID) Run() string { return r.ID }

func (r RunID) check() error {
	if r.ID == "" {
		return errors.New("no id")
	}
	return nil
}

// Meters are what a run saw of its memory, named as in proto.Meters, in bytes.
// A meter that the runner cannot read is nil.
type Meters struct {
	PeakAllocated    *int64            `json:"peak_allocated_bytes,omitempty"`
	PeakReserved     *int64            `json:"peak_reserved_bytes,omitempty"`
	LoadedAllocated  *int64            `json:"loaded_allocated_bytes,omitempty"`
	LoadedReserved   *int64            `json:"loaded_reserved_bytes,omitempty"`
	Weights          *int64            `json:"weights_bytes,omitempty"`
	ProcessPeak      *int64            `json:"process_peak_bytes,omitempty"`
	Context          *int64            `json:"context_bytes,omitempty"`
	DeviceFreeBefore *int64            `json:"device_free_before_bytes,omitempty"`
	DeviceTotal      *int64            `json:"device_total_bytes,omitempty"`
	NumAllocRetries  *int64            `json:"num_alloc_retries,omitempty"`
	NumOOMs          *int64            `json:"num_ooms,omitempty"`
	Missing          map[string]string `json:"missing,omitempty"`
}

// Hello is the runner's first event: what it runs on. The fields of Sim are a
// simulated runner's own.
type Hello struct {
	header
	Protocol     int      `json:"protocol"`
	PID          int      `json:"pid"`
	Python       string   `json:"python"`
	Torch        string   `json:"torch"`
	Transformers string   `json:"transformers"`
	CUDA         string   `json:"cuda"`
	QuotaKinds   []string `json:"quota_kinds"`
	Sim
}

// Sim is what a simulated runner says in place of NVML. Everything that comes
// from a runner with Simulated set is of origin simulated.
type Sim struct {
	Simulated  bool   `json:"simulated,omitempty"`
	GPU        string `json:"gpu,omitempty"`
	Driver     string `json:"driver,omitempty"`
	UUID       string `json:"uuid,omitempty"`
	TotalBytes int64  `json:"total_bytes,omitempty"`
}

// Started says that the run's process exists.
type Started struct {
	header
	RunID
	PID int `json:"pid"`
}

// Phase says how far a run is: start, load, forward, done.
type Phase struct {
	header
	RunID
	Phase  string `json:"phase"`
	Meters Meters `json:"meters"`
}

// The letters of Trace.Actions.
const (
	ActionAlloc         = 'a'
	ActionFreeRequested = 'r'
	ActionFreeCompleted = 'f'
	ActionSegmentAlloc  = 's'
	ActionSegmentFree   = 'x'
	ActionSegmentMap    = 'm'
	ActionSegmentUnmap  = 'u'
	ActionOOM           = 'o'
	ActionSnapshot      = 'p'
)

// actionLetters lists every letter that Trace.Actions may hold.
const actionLetters = "arfsxmuop"

// MaxTraceRows is the most rows that one Trace event carries; a run's trace
// comes as several events in order.
const MaxTraceRows = 20_000

// Trace is a stretch of the allocator's trace, one row an event, as columns of
// the same length. Addr is an unsigned 64-bit address; for an oom row it is the
// free bytes of the device. TimeUS is in microseconds since the epoch.
type Trace struct {
	header
	RunID
	Actions string   `json:"actions"`
	Addr    []uint64 `json:"addr"`
	Size    []int64  `json:"size"`
	Stream  []int64  `json:"stream"`
	TimeUS  []int64  `json:"time_us"`
}

func (t *Trace) check() error {
	n := len(t.Actions)
	if n > MaxTraceRows {
		return fmt.Errorf("%d rows in one event, at most %d are allowed", n, MaxTraceRows)
	}
	if len(t.Addr) != n || len(t.Size) != n || len(t.Stream) != n || len(t.TimeUS) != n {
		return fmt.Errorf("columns of different lengths: %d actions, %d addr, %d size, %d stream, %d time_us",
			n, len(t.Addr), len(t.Size), len(t.Stream), len(t.TimeUS))
	}
	if i := strings.IndexFunc(t.Actions, func(r rune) bool { return !strings.ContainsRune(actionLetters, r) }); i >= 0 {
		return fmt.Errorf("unknown action %q", t.Actions[i])
	}
	return t.RunID.check()
}

// Done says that the workload came to its end.
type Done struct {
	header
	RunID
	Meters         Meters            `json:"meters"`
	OutputFinite   *bool             `json:"output_finite,omitempty"`
	Settings       map[string]string `json:"settings"`
	Dtypes         map[string]string `json:"dtypes"`
	Seconds        float64           `json:"seconds"`
	TraceTruncated bool              `json:"trace_truncated"`
}

// Failed says that the workload ended by an error of its own. An out-of-memory
// is such an error. BadCell is true when the environment itself was rejected.
type Failed struct {
	header
	RunID
	Phase     string            `json:"phase"`
	Exception string            `json:"exception"`
	Message   string            `json:"message"`
	Traceback string            `json:"traceback"`
	Meters    Meters            `json:"meters"`
	Settings  map[string]string `json:"settings"`
	Seconds   float64           `json:"seconds"`
	BadCell   bool              `json:"bad_cell"`
}

// Exited is always the last event of a run: its process ended, with a code or
// by a signal (its name, for example "SIGKILL").
type Exited struct {
	header
	RunID
	Code   *int   `json:"code,omitempty"`
	Signal string `json:"signal,omitempty"`
}

func (e *Exited) check() error {
	if (e.Code == nil) == (e.Signal == "") {
		return errors.New("exactly one of code and signal is needed")
	}
	return e.RunID.check()
}

// Fault says that the runner itself cannot work; Message is one sentence that
// says what to do. ID is "" when no run is concerned.
type Fault struct {
	header
	ID      string `json:"id,omitempty"`
	Message string `json:"message"`
}

// Run returns the run's id, "" for none.
func (f *Fault) Run() string { return f.ID }

// Run of a hello is "".
func (h *Hello) Run() string { return "" }

func (h *Hello) check() error {
	if h.PID <= 0 {
		return errors.New("no pid")
	}
	return nil
}

func (f *Fault) check() error {
	if f.Message == "" {
		return errors.New("no message")
	}
	return nil
}

func (*Hello) kind() string   { return "hello" }
func (*Started) kind() string { return "started" }
func (*Phase) kind() string   { return "phase" }
func (*Trace) kind() string   { return "trace" }
func (*Done) kind() string    { return "done" }
func (*Failed) kind() string  { return "failed" }
func (*Exited) kind() string  { return "exited" }
func (*Fault) kind() string   { return "fault" }

func newEvent(kind string) Event {
	for _, e := range []Event{&Hello{}, &Started{}, &Phase{}, &Trace{}, &Done{}, &Failed{}, &Exited{}, &Fault{}} {
		if e.kind() == kind {
			return e
		}
	}
	return nil
}

// WriteEvent writes e as one line, in one Write.
func WriteEvent(w io.Writer, e Event) error {
	e.head().Ev = e.kind()
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode %s event: %w", e.kind(), err)
	}
	if _, err := w.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write %s event: %w", e.kind(), err)
	}
	return nil
}

// ParseEvent decodes one line. It refuses what is not one JSON object, an
// unknown ev or field, and an event that breaks the protocol's own rules.
func ParseEvent(line []byte) (Event, error) {
	var h header
	if err := json.Unmarshal(line, &h); err != nil {
		return nil, fmt.Errorf("event %s: %.300w", excerpt(line), err)
	}
	e := newEvent(h.Ev)
	if e == nil {
		return nil, fmt.Errorf("event %s: unknown ev %.80q", excerpt(line), h.Ev)
	}
	if err := strict(line, e); err != nil {
		return nil, fmt.Errorf("event %s: %.300w", excerpt(line), err)
	}
	if err := e.check(); err != nil {
		return nil, fmt.Errorf("%s event: %w", h.Ev, err)
	}
	return e, nil
}

// Events reads events from a runner.
type Events struct{ lines *lines }

// NewEvents returns a reader of events. It reads nothing yet.
func NewEvents(in io.Reader) *Events { return &Events{newLines(in)} }

// Next returns the next event, io.EOF at the end, and any other error for a
// violation of the protocol; after one the stream is of no further use.
func (e *Events) Next() (Event, error) {
	line, err := e.lines.next()
	if err != nil {
		return nil, err
	}
	return ParseEvent(line)
}
