package runner

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Protocol is the version that a runner announces in its Hello.
const Protocol = 1

// MaxLine is the longest line, in bytes without its newline, that either side
// accepts. A longer one is a violation of the protocol.
const MaxLine = 16 << 20

// Op is what a request asks for.
type Op string

const (
	// OpRun starts a run. A runner has one run at a time.
	OpRun Op = "run"
	// OpKill ends the run's whole process group with SIGKILL.
	OpKill Op = "kill"
	// OpExit ends the runner; closing its stdin means the same.
	OpExit Op = "exit"
)

// WorkloadCheck is a built-in workload that every runner knows: it makes a
// context, computes a little on the card and fails unless the numbers are right.
// A matrix cannot name it (esmfold, or a name with a colon).
const WorkloadCheck = "check"

// Workload names the program to run and its parameters, as in proto.Workload.
type Workload struct {
	Name   string            `json:"name"`
	Params map[string]string `json:"params,omitempty"`
}

// Request is one line from agent to runner. ID names the run for OpRun and
// OpKill; the other fields belong to OpRun alone.
type Request struct {
	Op       Op       `json:"op"`
	ID       string   `json:"id,omitempty"`
	Workload Workload `json:"workload,omitzero"`
	SeqLen   int      `json:"seq_len,omitempty"`
	Batch    int      `json:"batch,omitempty"`
	// ChunkSize 0 is no chunking.
	ChunkSize int `json:"chunk_size"`
	// Env is added to the run's environment before its first CUDA call.
	Env       map[string]string `json:"env,omitempty"`
	QuotaKind string            `json:"quota_kind,omitempty"`
	// QuotaBytes 0 is no quota.
	QuotaBytes int64 `json:"quota_bytes"`
	// Record asks for the allocator's trace.
	Record bool `json:"record"`
}

// WriteRequest writes r as one line.
func WriteRequest(w io.Writer, r Request) error {
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode %s request: %w", r.Op, err)
	}
	if _, err := w.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write %s request: %w", r.Op, err)
	}
	return nil
}

// Requests reads requests from in, for a runner written in Go.
type Requests struct{ lines *lines }

// NewRequests returns a reader of requests. It reads nothing yet.
func NewRequests(in io.Reader) *Requests { return &Requests{newLines(in)} }

// Next returns the next request, io.EOF at the end of the input, and any other
// error for a line that is not a request.
func (r *Requests) Next() (Request, error) {
	line, err := r.lines.next()
	if err != nil {
		return Request{}, err
	}
	var req Request
	if err := strict(line, &req); err != nil {
		return Request{}, fmt.Errorf("request %s: %.300w", excerpt(line), err)
	}
	switch req.Op {
	case OpRun, OpKill:
		if req.ID == "" {
			return Request{}, fmt.Errorf("request %s: no id", excerpt(line))
		}
	case OpExit:
	default:
		return Request{}, fmt.Errorf("request %s: unknown op", excerpt(line))
	}
	return req, nil
}

// ErrLineTooLong is returned when a line is longer than MaxLine.
var ErrLineTooLong = fmt.Errorf("line is longer than %d bytes", MaxLine)

// lines splits a stream into bounded lines; the slice that next returns is
// valid until the next call.
type lines struct {
	in  *bufio.Reader
	buf []byte
}

func newLines(in io.Reader) *lines { return &lines{in: bufio.NewReaderSize(in, 64<<10)} }

// next returns one line without its newline. A last line without a newline was
// cut short: it is io.ErrUnexpectedEOF, as half a line is no message.
func (l *lines) next() ([]byte, error) {
	l.buf = l.buf[:0]
	for {
		part, err := l.in.ReadSlice('\n')
		l.buf = append(l.buf, part...)
		switch {
		case len(l.buf) > MaxLine+1:
			return nil, ErrLineTooLong
		case err == nil:
			return l.buf[:len(l.buf)-1], nil
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(l.buf) > 0:
			return nil, io.ErrUnexpectedEOF
		default:
			return nil, err
		}
	}
}

// strict decodes one JSON value that fills the line and has no unknown field.
func strict(line []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value on the line")
	}
	return nil
}

// excerpt shows the beginning of a line safely: control bytes are escaped.
func excerpt(line []byte) string {
	const most = 80
	if len(line) > most {
		return fmt.Sprintf("%q...", line[:most])
	}
	return fmt.Sprintf("%q", line)
}
